/**
 * A build of BuildKit's clients as states: `planning` finds the steps, `solving` runs each that can begin as an actor
 * of its own, `exporting` makes the outputs, and `closing` gives back all that the build held. After a failure no step
 * begins any more, and those that run are cancelled; `closing` comes when the last one has ended.
 */
import { assign, enqueueActions, setup } from 'xstate';
import type { EngineError } from '../../../errors/engine-error.js';
import type { BuildResult } from '../../../ports/build.js';
import { asEngineError, effect } from '../../kit/effect.js';
import type { Solve } from './solve.js';
import { stepMachine, type StepOutcome } from './step.machine.js';

export interface SolveOutcome {
  readonly result: BuildResult | undefined;
  readonly error: EngineError | undefined;
}

interface Context extends SolveOutcome {
  readonly solve: Solve;
  readonly running: number;
}

/** An actor of a step has ended, or crashed. */
interface StepEvent {
  readonly type: `xstate.done.actor.${string}` | `xstate.error.actor.${string}`;
  readonly output?: StepOutcome;
  readonly error?: unknown;
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
    step: stepMachine,
    export: effect<BuildResult, Solve>((solve) => solve.export()),
    close: effect<void, Solve>((solve) => solve.close()),
  },
  guards: {
    isOver: ({ context: { running } }) => running === 0,
    hasFailed: ({ context: { running, error } }) => running === 0 && error !== undefined,
  },
  actions: {
    begin: enqueueActions(({ context: { solve, error, running }, enqueue }) => {
      if (error) return;
      const inputs = solve.next();
      for (const input of inputs) enqueue.spawnChild('step', { id: `step-${input.work.step.digest}`, input });
      enqueue.assign({ running: running + inputs.length });
    }),
    ended: assign(({ context: { solve, running, error }, event }) => {
      const { output, error: crash } = event;
      if (output?.result) solve.complete(output.digest, output.result);
      const failure = output?.error ?? (crash === undefined ? undefined : asEngineError(crash));
      if (failure && error === undefined) solve.abort(failure);
      return { running: running - 1, error: error ?? failure };
    }),
    keep: assign((_, result: BuildResult) => ({ result })),
    blame: assign(({ event, context: { error } }) => ({
      error: error ?? asEngineError((event as { readonly error?: unknown }).error),
    })),
  },
}).createMachine({
  id: 'solve',
  context: ({ input: { solve } }) => ({ solve, running: 0, result: undefined, error: undefined }),
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
      entry: 'begin',
      always: [
        { guard: 'hasFailed', target: 'closing' },
        { guard: 'isOver', target: 'exporting' },
      ],
      on: {
        'xstate.done.actor.*': { actions: ['ended', 'begin'] },
        'xstate.error.actor.*': { actions: ['ended', 'begin'] },
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
