/** Effects: the only I/O of actors, invoked by machines as promises with an abort signal. */
import { fromPromise } from 'xstate';
import { EngineError, internal, messageOf } from '../../errors/engine-error.js';
import { runEffect } from './faults.js';
import { Pace } from './pace.js';

/**
 * Makes promise logic that fails with EngineErrors only, so that machines and clients see one hierarchy. Anything else
 * that is thrown is a bug and keeps its cause for the log. The signal aborts when the machine leaves the state, and
 * also when it crashes: nobody waits for the effect then, so it must not wait for others.
 */
export function effect<Output, Input>(run: (input: Input, signal: AbortSignal) => Promise<Output>) {
  return fromPromise<Output, Input>(async ({ input, signal, self }) => {
    const over = new AbortController();
    const abort = (): void => over.abort(signal.reason);
    signal.addEventListener('abort', abort, { once: true });
    // A crashed machine does not stop what it invoked.
    const crash = self._parent?.subscribe({ error: (error) => over.abort(error) });
    try {
      return await runEffect(self.id, () => run(input, over.signal));
    } catch (error) {
      throw asEngineError(error);
    } finally {
      crash?.unsubscribe();
      signal.removeEventListener('abort', abort);
    }
  });
}

/** An effect tells this to its machine when it makes no progress any more. The machine is to crash with the error. */
export interface EffectHung {
  readonly type: 'effect.hung';
  readonly error: EngineError;
}

/**
 * Makes an effect that is given up when it makes no progress. Nobody knows what a promise leaves that never settles, so
 * this is no failure like others: the machine crashes, and the next one begins with what it finds. The signal aborts,
 * so that an effect that goes on after all takes back what it did.
 */
export function limitedEffect<Output, Input>(run: (input: Input, signal: AbortSignal, pace: Pace) => Promise<Output>) {
  return fromPromise<Output, Input>(async ({ input, signal, self }) => {
    const over = new AbortController();
    const abort = (): void => over.abort(signal.reason);
    signal.addEventListener('abort', abort, { once: true });
    const pace = new Pace(`${self.id.split('.').at(-1)}`, (error) => {
      over.abort(error);
      const event: EffectHung = { type: 'effect.hung', error };
      self._parent?.send(event);
    });
    try {
      return await runEffect(self.id, () => run(input, over.signal, pace));
    } catch (error) {
      throw asEngineError(error);
    } finally {
      pace.end();
      signal.removeEventListener('abort', abort);
    }
  });
}

/** Returns the error itself when it is an EngineError, else an `internal` one that carries it as cause. */
export function asEngineError(error: unknown): EngineError {
  return error instanceof EngineError ? error : internal(messageOf(error), { cause: error });
}
