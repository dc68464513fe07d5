/** Waiting for things that have no event. */
import { setTimeout as sleep } from 'node:timers/promises';

/** Polls until `probe` gives something other than undefined or false. Throws with `what` when time is up. */
export async function waitFor<T>(
  what: string | (() => string),
  probe: () => T | undefined | false | Promise<T | undefined | false>,
  timeoutMs = 60_000,
  intervalMs = 20,
): Promise<T> {
  const deadline = Date.now() + timeoutMs;
  for (;;) {
    const value = await probe();
    if (value !== undefined && value !== false) return value;
    if (Date.now() > deadline)
      throw new Error(`waited ${timeoutMs} ms in vain for ${typeof what === 'string' ? what : what()}`);
    await sleep(intervalMs);
  }
}
