/**
 * The pull of one reference, shared by every client that asked for it.
 *
 *   resolving(wanted|cancelling) ──► fetching(wanted|cancelling) ──► registering ──► done
 *        │          ▲                     │                              │
 *        │          └── wanted again ─────┤                              │
 *        └────────────────────────────────┴──────────────────────────────┴──► failed
 *
 * Owner: the pulls collection, one actor per request. Invariants: a join is answered when the image is resolved, or
 * with the reason why it is not; the pull ends when its last interested client leaves, except that an image whose
 * layers are all here is registered anyway; what the fetch holds is released before the end.
 */
import { assign, setup } from 'xstate';
import { isEngineError } from '../../errors/engine-error.js';
import type { RequestId } from '../kit/commands.js';
import { effect } from '../kit/effect.js';
import type { Replies } from '../kit/replies.js';
import type { PullProgress } from './pull-progress.js';
import type { LocatedImage, PullEvent, PullInput } from './pull.messages.js';

export interface PullJob {
  readonly pull: PullInput;
  readonly located: LocatedImage;
}

/** All reject with EngineErrors after they have cleaned up. */
export interface PullEffects {
  resolve(pull: PullInput): Promise<LocatedImage>;
  /** Brings every layer into the store and holds a reference on it for the job. */
  fetch(job: PullJob): Promise<void>;
  /** Makes the image, names it, writes the closing lines and gives the references on the layers back. */
  register(job: PullJob): Promise<void>;
}

/** Quick calls; none of them throws. */
export interface PullHooks {
  /** Makes the effect of this job that is under way reject with `cancelled`. */
  cancel(id: string): void;
  /** The progress of a resolved job; a new one begins with the opening lines. */
  progress(job: PullJob): PullProgress;
  /** Closes the progress of an ended job, with the error that readers shall see. */
  close(id: string, error?: unknown): void;
}

interface PullContext {
  readonly pull: PullInput;
  readonly located: LocatedImage | undefined;
  /** Joins that wait for the image to be resolved. */
  readonly joining: readonly RequestId[];
  /** Clients that read. */
  readonly interests: readonly RequestId[];
}

export function createPullMachine(effects: PullEffects, hooks: PullHooks, replies: Replies) {
  const jobOf = ({ pull, located }: PullContext): PullJob => {
    if (!located) throw new Error('the image is not resolved');
    return { pull, located };
  };
  const without = (list: readonly RequestId[], event: PullEvent): RequestId[] =>
    list.filter(
      (one) =>
        one !== (event.type === 'pull.left' ? event.interest : event.type === 'request.cancelled' ? event.req : -1),
    );

  return setup({
    types: { context: {} as PullContext, events: {} as PullEvent, input: {} as PullInput },
    actors: {
      resolve: effect<LocatedImage, PullInput>((pull) => effects.resolve(pull)),
      fetch: effect<void, PullJob>((job) => effects.fetch(job)),
      register: effect<void, PullJob>((job) => effects.register(job)),
    },
    actions: {
      wait: assign(({ context, event }) =>
        event.type === 'pull.join' ? { joining: [...context.joining, event.req] } : {},
      ),
      admit: assign(({ context, event }) => {
        const arriving = event.type === 'pull.join' ? [event.req] : context.joining;
        const progress = hooks.progress(jobOf(context));
        for (const req of arriving) replies.settle(req, { interest: req, progress });
        return { joining: [], interests: [...context.interests, ...arriving] };
      }),
      leave: assign(({ context, event }) => ({
        joining: without(context.joining, event),
        interests: without(context.interests, event),
      })),
      cancel: ({ context }) => hooks.cancel(context.pull.id),
      close: ({ context }) => hooks.close(context.pull.id),
      fail: ({ context, event }) => {
        const { error } = event as { readonly error?: unknown };
        for (const req of context.joining) replies.reject(req, error);
        hooks.close(context.pull.id, error);
      },
    },
    guards: {
      isLast: ({ context, event }) => without([...context.joining, ...context.interests], event).length === 0,
      isWanted: ({ context }) => context.joining.length > 0,
      isWantedAgain: ({ context, event }) =>
        context.joining.length > 0 && isEngineError((event as { error?: unknown }).error, 'cancelled'),
    },
  }).createMachine({
    id: 'pull',
    context: ({ input }) => ({ pull: input, located: undefined, joining: [], interests: [] }),
    initial: 'resolving',
    on: {
      'pull.join': { actions: 'wait' },
      'pull.left': { actions: 'leave' },
      'request.cancelled': { actions: 'leave' },
    },
    states: {
      resolving: {
        initial: 'wanted',
        invoke: {
          src: 'resolve',
          input: ({ context }) => context.pull,
          onDone: [
            {
              guard: 'isWanted',
              target: 'fetching',
              actions: [assign(({ event }) => ({ located: event.output })), 'admit'],
            },
            { target: 'abandoned' },
          ],
          onError: [
            { guard: 'isWantedAgain', target: 'resolving', reenter: true },
            { target: 'failed', actions: 'fail' },
          ],
        },
        states: {
          wanted: {
            on: {
              'pull.left': [{ guard: 'isLast', target: 'cancelling', actions: 'leave' }, { actions: 'leave' }],
              'request.cancelled': [{ guard: 'isLast', target: 'cancelling', actions: 'leave' }, { actions: 'leave' }],
            },
          },
          cancelling: { entry: 'cancel' },
        },
      },
      fetching: {
        initial: 'wanted',
        invoke: {
          src: 'fetch',
          input: ({ context }) => jobOf(context),
          onDone: { target: 'registering', actions: 'admit' },
          onError: [
            { guard: 'isWantedAgain', target: 'resolving', actions: 'close' },
            { target: 'failed', actions: 'fail' },
          ],
        },
        states: {
          wanted: {
            on: {
              'pull.join': { actions: 'admit' },
              'pull.left': [{ guard: 'isLast', target: 'cancelling', actions: 'leave' }, { actions: 'leave' }],
              'request.cancelled': [{ guard: 'isLast', target: 'cancelling', actions: 'leave' }, { actions: 'leave' }],
            },
          },
          cancelling: { entry: 'cancel' },
        },
      },
      registering: {
        on: { 'pull.join': { actions: 'admit' } },
        invoke: {
          src: 'register',
          input: ({ context }) => jobOf(context),
          onDone: { target: 'done', actions: 'close' },
          onError: { target: 'failed', actions: 'fail' },
        },
      },
      done: { type: 'final' },
      abandoned: { type: 'final' },
      failed: { type: 'final' },
    },
  });
}

export type PullMachine = ReturnType<typeof createPullMachine>;
