/** Waiting for things that have no event. */
import { setTimeout as sleep } from 'node:timers/promises';

/** A wait that is long already looks less often: after this part of its time, and at least so often. */
const PART = 1 / 10;
const MOST_MS = 100;

/**
 * Polls until `probe` gives something other than undefined or false. Throws with `what` when time is up.
 * @param intervalMs looks so often all the time. Default: 20 at first, and then less often.
 */
export async function waitFor<T>(
  what: string | (() => string),
  probe: () => T | undefined | false | Promise<T | undefined | false>,
  timeoutMs = 60_000,
  intervalMs?: number,
): Promise<T> {
  const began = Date.now();
  const deadline = began + timeoutMs;
  for (;;) {
    const value = await probe();
    if (value !== undefined && value !== false) return value;
    if (Date.now() > deadline)
      throw new Error(`waited ${timeoutMs} ms in vain for ${typeof what === 'string' ? what : what()}`);
    await sleep(intervalMs ?? Math.min(MOST_MS, Math.max(20, (Date.now() - began) * PART)));
  }
}
