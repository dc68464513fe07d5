/**
 * One run of the pull of a reference, which the clients of the job share.
 *
 *   resolving ──► fetching ──► registering ──► done
 *       │            │              │
 *       └────────────┴──────────────┴────────► failed
 *
 * Owner: the pulls collection, one actor per run. Invariants: a cancelled pull asks no more of a registry; one that
 * fetches waits until the fetch has cleaned up, and an image whose layers are all here by then is registered anyway;
 * what the fetch holds is released at the end.
 */
import { assign, setup } from 'xstate';
import { cancelled } from '../../errors/engine-error.js';
import { effect } from '../kit/effect.js';
import type { LocatedImage, PullEvent, PullInput, PullJob, PullOutcome } from './pull.messages.js';

/** The effects of a pull. All reject with EngineErrors after they have cleaned up. */
export interface PullEffects {
  resolve(pull: PullInput, signal: AbortSignal): Promise<LocatedImage>;
  /** Brings every layer into the store and holds a reference on it for the job. */
  fetch(job: PullJob): Promise<void>;
  /** Makes the image, names it, writes the closing lines and gives the references on the layers back. */
  register(job: PullJob): Promise<void>;
}

/** Quick calls; none of them throws. */
export interface PullHooks {
  /** Called when the image is known: the clients that wait are answered, and can read the progress. */
  resolved(job: PullJob): void;
  /** Makes the fetch of this pull reject with `cancelled`. */
  cancel(id: string): void;
}

export interface PullContext {
  readonly pull: PullInput;
  readonly located: LocatedImage | undefined;
  readonly error: unknown;
}

export function createPullMachine(effects: PullEffects, hooks: PullHooks) {
  return setup({
    types: {
      context: {} as PullContext,
      events: {} as PullEvent,
      input: {} as PullInput,
      output: {} as PullOutcome,
    },
    actors: {
      resolve: effect<LocatedImage, PullInput>((pull, signal) => effects.resolve(pull, signal)),
      fetch: effect<void, PullJob>((job) => effects.fetch(job)),
      register: effect<void, PullJob>((job) => effects.register(job)),
    },
    actions: {
      announce: ({ context }) => hooks.resolved(jobOf(context)),
      cancelFetch: ({ context }) => hooks.cancel(context.pull.id),
      locate: assign((_, located: LocatedImage) => ({ located })),
      blame: assign(({ event }) => ({ error: (event as { readonly error?: unknown }).error })),
      withdraw: assign(() => ({ error: cancelled('the pull is not wanted any more') })),
    },
  }).createMachine({
    id: 'pull',
    context: ({ input }) => ({ pull: input, located: undefined, error: undefined }),
    initial: 'resolving',
    output: ({ context }) => ({ error: context.error }),
    states: {
      resolving: {
        invoke: {
          src: 'resolve',
          input: ({ context }) => context.pull,
          onDone: {
            target: 'fetching',
            actions: [{ type: 'locate', params: ({ event }) => event.output }, 'announce'],
          },
          onError: { target: 'failed', actions: 'blame' },
        },
        on: { 'pull.cancel': { target: 'failed', actions: 'withdraw' } },
      },
      fetching: {
        invoke: {
          src: 'fetch',
          input: ({ context }) => jobOf(context),
          onDone: { target: 'registering' },
          onError: { target: 'failed', actions: 'blame' },
        },
        on: { 'pull.cancel': { actions: 'cancelFetch' } },
      },
      registering: {
        invoke: {
          src: 'register',
          input: ({ context }) => jobOf(context),
          onDone: { target: 'done' },
          onError: { target: 'failed', actions: 'blame' },
        },
      },
      done: { type: 'final' },
      failed: { type: 'final' },
    },
  });
}

function jobOf({ pull, located }: PullContext): PullJob {
  if (!located) throw new Error('the image is not resolved');
  return { pull, located };
}

export type PullMachine = ReturnType<typeof createPullMachine>;
