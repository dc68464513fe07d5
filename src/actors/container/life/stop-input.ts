/**
 * How a container is stopped: the client's wish comes first, then the container's own settings, then the usual ones.
 */
import type { StopInput } from '../container.effects.types.js';
import type { StopOptions } from '../container.messages.js';
import type { ContainerRecord } from '../container.record.js';
import { SIGKILL, SIGTERM, signalNumber } from '../../../text/signals.js';

const DEFAULT_STOP_SECONDS = 10;

export function stopInput(record: ContainerRecord, options: StopOptions): StopInput {
  const timeoutSeconds = options.timeoutSeconds ?? record.config.StopTimeout ?? DEFAULT_STOP_SECONDS;
  return {
    record,
    signal: options.signal ?? signalNumber(record.config.StopSignal ?? '') ?? SIGTERM,
    killAtMs: timeoutSeconds < 0 ? Infinity : performance.now() + timeoutSeconds * 1000,
  };
}

/**
 * Returns whether a signal means that the container shall stay down: SIGKILL, its stop signal, or any signal when it
 * names none.
 */
export function cancelsRestart(record: ContainerRecord, signal: number): boolean {
  if (signal === SIGKILL || !record.config.StopSignal) return true;
  return signal === signalNumber(record.config.StopSignal);
}
