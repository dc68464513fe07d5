/**
 * One build as states: `building`, and then `done` or `failed`. A cancelled build stays in the first one until its
 * steps have given back what they hold.
 */
import { assign, setup } from 'xstate';
import { cancelled } from '../../errors/engine-error.js';
import type { BuildRequest, BuildResult } from '../../ports/build.js';
import { effect } from '../kit/effect.js';

/** The client has gone, or does not want the image any more. */
export type BuildEvent = { readonly type: 'build.cancel' };

export interface BuildInput {
  readonly request: BuildRequest;
  readonly abort: AbortController;
}

/** The last word of the actor. */
export interface BuildOutcome {
  readonly result: BuildResult | undefined;
  readonly error: unknown;
}

type Work = (request: BuildRequest, signal: AbortSignal) => Promise<BuildResult>;

export function createBuildMachine(work: Work) {
  return setup({
    types: {
      context: {} as BuildInput & BuildOutcome,
      events: {} as BuildEvent,
      input: {} as BuildInput,
      output: {} as BuildOutcome,
    },
    actors: {
      build: effect<BuildResult, BuildInput>(({ request, abort }, signal) =>
        work(request, AbortSignal.any([signal, abort.signal])),
      ),
    },
    actions: {
      keep: assign((_, result: BuildResult) => ({ result })),
      blame: assign(({ event }) => ({ error: (event as { readonly error?: unknown }).error })),
      // The effect ends by itself then, when its steps have given back what they hold.
      abort: ({ context }) => context.abort.abort(cancelled('context canceled')),
    },
  }).createMachine({
    id: 'build',
    context: ({ input }) => ({ ...input, result: undefined, error: undefined }),
    initial: 'building',
    output: ({ context: { result, error } }) => ({ result, error }),
    states: {
      building: {
        invoke: {
          src: 'build',
          input: ({ context: { request, abort } }) => ({ request, abort }),
          onDone: { target: 'done', actions: { type: 'keep', params: ({ event }) => event.output } },
          onError: { target: 'failed', actions: 'blame' },
        },
        on: { 'build.cancel': { actions: 'abort' } },
      },
      done: { type: 'final' },
      failed: { type: 'final' },
    },
  });
}

export type BuildMachine = ReturnType<typeof createBuildMachine>;
