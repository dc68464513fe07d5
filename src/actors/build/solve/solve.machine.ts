/**
 * A build of BuildKit's clients as states: `planning` finds the steps, `solving` runs each that can begin as an actor
 * of its own, `exporting` makes the outputs, and `closing` gives back all that the build held. In `solving.advancing`
 * the plan is told which steps have ended and says which can begin; those that the cache is known to have are over at
 * once. In `solving.waiting` steps run. After a failure no step begins any more, and those that run are cancelled;
 * `closing` comes when the last one has ended.
 */
import { assign, enqueueActions, setup } from 'xstate';
import type { EngineError } from '../../../errors/engine-error.js';
import type { BuildResult } from '../../../ports/build.js';
import { asEngineError, effect } from '../../kit/effect.js';
import type { Solve } from './solve.js';
import { type StepInput, stepMachine, type StepOutcome } from './step.machine.js';

export interface SolveOutcome {
  readonly result: BuildResult | undefined;
  readonly error: EngineError | undefined;
}

interface Context extends SolveOutcome {
  readonly solve: Solve;
  readonly running: number;
  /** The last words of steps that the plan has not been told yet. */
  readonly ended: readonly StepOutcome[];
}

interface Advance {
  /** So many of the last words were told. */
  readonly told: number;
  readonly inputs: readonly StepInput[];
}

/** An actor of a step has ended, or crashed. */
interface StepEvent {
  readonly type: `xstate.done.actor.${string}` | `xstate.error.actor.${string}`;
  readonly output?: StepOutcome;
  readonly error?: unknown;
}

/** So many steps of a build have actors at a time: a Dockerfile may have thousands that wait for nothing. */
const MAX_RUNNING = 100;

/** Tells the plan how steps have ended. Returns some that can begin now; after a failure, which cancels all, none. */
async function advance({ solve, running, ended, error }: Context): Promise<Advance> {
  for (const { digest, result } of ended) if (result) solve.complete(digest, result);
  if (error) solve.abort(error);
  return { told: ended.length, inputs: error ? [] : await solve.next(MAX_RUNNING - running) };
}

export const solveMachine = setup({
  types: {
    context: {} as Context,
    input: {} as { readonly solve: Solve },
    output: {} as SolveOutcome,
    events: {} as StepEvent,
  },
  actors: {
    plan: effect<void, Solve>((solve) => solve.plan()),
    advance: effect<Advance, Context>((context) => Promise.resolve(context).then(advance)),
    step: stepMachine,
    export: effect<BuildResult, Solve>((solve) => solve.export()),
    close: effect<void, Solve>((solve) => solve.close()),
  },
  guards: {
    hasNews: ({ context: { ended } }) => ended.length > 0,
    isOver: ({ context: { running } }) => running === 0,
    hasFailed: ({ context: { running, error } }) => running === 0 && error !== undefined,
  },
  actions: {
    begin: enqueueActions(({ context: { error, running, ended }, enqueue }, { told, inputs }: Advance) => {
      // A step may have failed while the plan was asked.
      const begun = error ? [] : inputs;
      for (const input of begun) enqueue.spawnChild('step', { id: `step-${input.work.step.digest}`, input });
      enqueue.assign({ running: running + begun.length, ended: ended.slice(told) });
    }),
    ended: assign(({ context: { running, ended, error }, event }) => {
      const failure = event.output?.error ?? (event.error === undefined ? undefined : asEngineError(event.error));
      const outcome = event.output ?? { digest: '', result: undefined, error: failure };
      return { running: running - 1, ended: [...ended, outcome], error: error ?? failure };
    }),
    // A plan that cannot be told how steps ended is not asked again.
    forget: assign({ ended: [] }),
    cancel: ({ context: { solve, error } }) => solve.abort(error),
    keep: assign((_, result: BuildResult) => ({ result })),
    blame: assign(({ event, context: { error } }) => ({
      error: error ?? asEngineError((event as { readonly error?: unknown }).error),
    })),
  },
}).createMachine({
  id: 'solve',
  context: ({ input: { solve } }) => ({ solve, running: 0, ended: [], result: undefined, error: undefined }),
  output: ({ context: { result, error } }) => ({ result: error ? undefined : result, error }),
  initial: 'planning',
  states: {
    planning: {
      invoke: {
        src: 'plan',
        input: ({ context: { solve } }) => solve,
        onDone: 'solving',
        onError: { target: 'closing', actions: 'blame' },
      },
    },
    solving: {
      initial: 'advancing',
      on: {
        'xstate.done.actor.*': { actions: 'ended' },
        'xstate.error.actor.*': { actions: 'ended' },
      },
      states: {
        advancing: {
          invoke: {
            src: 'advance',
            input: ({ context }) => context,
            onDone: { target: 'waiting', actions: { type: 'begin', params: ({ event }) => event.output } },
            onError: { target: 'waiting', actions: ['blame', 'forget', 'cancel'] },
          },
        },
        waiting: {
          always: [
            { guard: 'hasNews', target: 'advancing' },
            { guard: 'hasFailed', target: '#solve.closing' },
            { guard: 'isOver', target: '#solve.exporting' },
          ],
        },
      },
    },
    exporting: {
      invoke: {
        src: 'export',
        input: ({ context: { solve } }) => solve,
        onDone: { target: 'closing', actions: { type: 'keep', params: ({ event }) => event.output } },
        onError: { target: 'closing', actions: 'blame' },
      },
    },
    closing: {
      invoke: {
        src: 'close',
        input: ({ context: { solve } }) => solve,
        onDone: 'over',
        onError: { target: 'over', actions: 'blame' },
      },
    },
    over: { type: 'final' },
  },
});
