/**
 * One step as states: `lookingUp` finds what it made before, `queued` waits for a processor, `running` does it. It ends
 * in `done`, `failed` or `cancelled`, when it has given back what it held.
 */
import { assign, setup } from 'xstate';
import { type EngineError, isEngineError } from '../../../errors/engine-error.js';
import { asEngineError, effect } from '../../kit/effect.js';
import type { LookUp, StepExecutor } from './executor.js';
import type { StepWork } from './step.js';
import type { StepResult } from './step-result.js';

export interface StepInput {
  readonly executor: StepExecutor;
  readonly work: StepWork;
}

/** The last word of the actor. */
export interface StepOutcome {
  readonly digest: string;
  readonly result: StepResult | undefined;
  readonly error: EngineError | undefined;
}

interface Context extends StepInput {
  readonly missed: Extract<LookUp, { kind: 'missed' }> | undefined;
  readonly freeProcessor: () => void;
  readonly result: StepResult | undefined;
  readonly error: EngineError | undefined;
}

const nothing = (): void => undefined;

export const stepMachine = setup({
  types: { context: {} as Context, input: {} as StepInput, output: {} as StepOutcome },
  actors: {
    lookUp: effect<LookUp, StepInput>(({ executor, work }) => executor.lookUp(work)),
    queue: effect<() => void, StepInput>(({ executor, work }) => executor.queue(work)),
    perform: effect<StepResult, { context: Context }>(({ context: { executor, work, missed } }) =>
      executor.perform(work, missed?.keys),
    ),
  },
  guards: {
    isFound: (_, found: LookUp) => found.kind === 'found',
    isCancelled: ({ event }) => isEngineError((event as { readonly error?: unknown }).error, 'cancelled'),
  },
  actions: {
    begin: ({ context: { executor, work } }) => executor.started(work.step),
    take: assign((_, found: LookUp) => (found.kind === 'found' ? { result: found.result } : { missed: found })),
    takeProcessor: assign((_, freeProcessor: () => void) => ({ freeProcessor })),
    keep: assign((_, result: StepResult) => ({ result })),
    blame: assign(({ event }) => ({ error: asEngineError((event as { readonly error?: unknown }).error) })),
    release: ({ context: { missed, freeProcessor } }) => {
      freeProcessor();
      missed?.release();
    },
    tell: ({ context: { executor, work, result, error } }) => executor.ended(work.step, result, error),
  },
}).createMachine({
  id: 'step',
  context: ({ input }) => ({
    ...input,
    missed: undefined,
    freeProcessor: nothing,
    result: undefined,
    error: undefined,
  }),
  output: ({ context: { work, result, error } }) => ({ digest: work.step.digest, result, error }),
  initial: 'lookingUp',
  states: {
    lookingUp: {
      invoke: {
        src: 'lookUp',
        input: ({ context: { executor, work } }) => ({ executor, work }),
        onDone: [
          {
            guard: { type: 'isFound', params: ({ event }) => event.output },
            target: 'done',
            actions: { type: 'take', params: ({ event }) => event.output },
          },
          { target: 'queued', actions: { type: 'take', params: ({ event }) => event.output } },
        ],
        onError: [
          { guard: 'isCancelled', target: 'cancelled', actions: 'blame' },
          { target: 'failed', actions: ['begin', 'blame'] },
        ],
      },
    },
    queued: {
      invoke: {
        src: 'queue',
        input: ({ context: { executor, work } }) => ({ executor, work }),
        onDone: { target: 'running', actions: { type: 'takeProcessor', params: ({ event }) => event.output } },
        onError: { target: 'cancelled', actions: 'blame' },
      },
    },
    running: {
      entry: 'begin',
      invoke: {
        src: 'perform',
        input: ({ context }) => ({ context }),
        onDone: { target: 'done', actions: { type: 'keep', params: ({ event }) => event.output } },
        onError: [
          { guard: 'isCancelled', target: 'cancelled', actions: 'blame' },
          { target: 'failed', actions: 'blame' },
        ],
      },
    },
    done: { type: 'final', entry: ['release', 'tell'] },
    failed: { type: 'final', entry: ['release', 'tell'] },
    cancelled: { type: 'final', entry: ['release', 'tell'] },
  },
});
