/** Effects: the only I/O of actors, invoked by machines as promises with an abort signal. */
import { fromPromise } from 'xstate';
import { EngineError, internal, messageOf } from '../../errors/engine-error.js';
import { runEffect } from './faults.js';

/**
 * Promise logic that fails with EngineErrors only, so that machines and clients see one hierarchy. Whatever else is
 * thrown is a bug and keeps its cause for the log.
 */
export function effect<Output, Input>(run: (input: Input, signal: AbortSignal) => Promise<Output>) {
  return fromPromise<Output, Input>(async ({ input, signal, self }) => {
    try {
      return await runEffect(self.id, () => run(input, signal));
    } catch (error) {
      throw asEngineError(error);
    }
  });
}

/** The error itself when it is an EngineError, else an `internal` one that carries it as cause. */
export function asEngineError(error: unknown): EngineError {
  return error instanceof EngineError ? error : internal(messageOf(error), { cause: error });
}
