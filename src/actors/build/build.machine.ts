/**
 * One build as states: `building` for the classic builder and `solving` for the others, and then `done` or `failed`. A
 * cancelled build stays where it is until its steps have given back what they hold.
 */
import { assign, setup } from 'xstate';
import { cancelled } from '../../errors/engine-error.js';
import type { BuildRequest, BuildResult } from '../../ports/build.js';
import { effect } from '../kit/effect.js';
import { solveMachine, type SolveOutcome } from './solve/solve.machine.js';
import type { Solve } from './solve/solve.js';

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

type Kept = Pick<BuildOutcome, 'result'>;
type Blamed = Pick<BuildOutcome, 'error'>;

export interface BuildWorks {
  /** Builds as the classic builder does. */
  readonly classic: (request: BuildRequest, signal: AbortSignal) => Promise<BuildResult>;
  /** Prepares any other build. */
  readonly solve: (request: BuildRequest, signal: AbortSignal) => Solve;
}

export function createBuildMachine({ classic, solve }: BuildWorks) {
  return setup({
    types: {
      context: {} as BuildInput & BuildOutcome,
      events: {} as BuildEvent,
      input: {} as BuildInput,
      output: {} as BuildOutcome,
    },
    actors: {
      build: effect<BuildResult, BuildInput>(({ request, abort }, signal) =>
        classic(request, AbortSignal.any([signal, abort.signal])),
      ),
      solve: solveMachine,
    },
    guards: {
      isClassic: ({ context: { request } }) => request.classic !== undefined,
      isDone: (_, { result }: SolveOutcome) => result !== undefined,
    },
    actions: {
      keep: assign((_, { result }: Kept) => ({ result })),
      blame: assign((_, { error }: Blamed) => ({ error })),
      // The steps end by themselves then, when they have given back what they hold.
      abort: ({ context }) => context.abort.abort(cancelled('context canceled')),
    },
  }).createMachine({
    id: 'build',
    context: ({ input }) => ({ ...input, result: undefined, error: undefined }),
    initial: 'deciding',
    output: ({ context: { result, error } }) => ({ result, error }),
    on: { 'build.cancel': { actions: 'abort' } },
    states: {
      deciding: { always: [{ guard: 'isClassic', target: 'building' }, { target: 'solving' }] },
      building: {
        invoke: {
          src: 'build',
          input: ({ context: { request, abort } }) => ({ request, abort }),
          onDone: { target: 'done', actions: { type: 'keep', params: ({ event }) => ({ result: event.output }) } },
          onError: { target: 'failed', actions: { type: 'blame', params: ({ event }) => ({ error: event.error }) } },
        },
      },
      solving: {
        invoke: {
          src: 'solve',
          id: 'solve',
          input: ({ context: { request, abort } }) => ({ solve: solve(request, abort.signal) }),
          onDone: [
            {
              guard: { type: 'isDone', params: ({ event }) => event.output },
              target: 'done',
              actions: { type: 'keep', params: ({ event }) => ({ result: event.output.result }) },
            },
            { target: 'failed', actions: { type: 'blame', params: ({ event }) => ({ error: event.output.error }) } },
          ],
          onError: { target: 'failed', actions: { type: 'blame', params: ({ event }) => ({ error: event.error }) } },
        },
      },
      done: { type: 'final' },
      failed: { type: 'final' },
    },
  });
}

export type BuildMachine = ReturnType<typeof createBuildMachine>;
