/** Limits in time that a busy machine does not use up. */
import { setTimeout as sleep } from 'node:timers/promises';

const STEP_MS = 10;

/**
 * Resolves after a time in which the event loop had its turns, or when `signal` aborts. When the machine has so much to
 * do that the loop comes to its turns late, what it waits for is late as well, so a delay counts no more than a short
 * step.
 */
export async function awake(ms: number, signal: AbortSignal): Promise<void> {
  for (let spent = 0; spent < ms && !signal.aborted; spent += STEP_MS)
    await sleep(STEP_MS, undefined, { signal }).catch(() => undefined);
}
