/** How long a daemon keeps its other clients waiting while something costs it work. */
import { performance } from 'node:perf_hooks';
import { setTimeout as delay } from 'node:timers/promises';
import { call } from './http.js';

/** A daemon that is held up is slow at each attempt; a busy machine delays only some of them. */
const ATTEMPTS = 5;
const GOOD_MS = 1000;
/** A ping without a pause would compete with the work that it watches. */
const PAUSE_MS = 5;

/** The longest round trip of `_ping` while `work` is under way, at least one: the best of several attempts. */
export async function longestPingMs(socketPath: string, work: () => Promise<void>): Promise<number> {
  let best = Infinity;
  for (let i = 0; i < ATTEMPTS && best >= GOOD_MS; i++) best = Math.min(best, await longestDuring(socketPath, work()));
  return best;
}

async function longestDuring(socketPath: string, work: Promise<void>): Promise<number> {
  let longest = 0;
  const state = { isOver: false };
  const end = work.finally(() => (state.isOver = true));
  // The failure is reported below.
  end.catch(() => undefined);
  do {
    const started = performance.now();
    const { text } = await call(socketPath, 'GET', '/_ping');
    if (text !== 'OK') throw new Error(`_ping gave ${text}`);
    longest = Math.max(longest, performance.now() - started);
    await Promise.race([end, delay(PAUSE_MS)]).catch(() => undefined);
  } while (!state.isOver);
  await end;
  return longest;
}
