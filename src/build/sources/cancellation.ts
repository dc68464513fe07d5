/** Signals of builds are aborted with an error of this daemon, or without any. */
import { cancelled, isEngineError } from '../../errors/engine-error.js';

export function reasonOf(signal: AbortSignal): Error {
  return isEngineError(signal.reason) ? signal.reason : cancelled('context canceled', { cause: signal.reason });
}

export function throwIfAborted(signal: AbortSignal): void {
  if (signal.aborted) throw reasonOf(signal);
}
