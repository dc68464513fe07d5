/** Whether a daemon still answers others while it is given something hard to do. */
import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { setTimeout as sleep } from 'node:timers/promises';
import type { Engine } from './engine.js';
import { call } from './http.js';

const MAX_PING_MS = 1000;
const TRIES = 5;
/** Without it pings alone keep a processor busy. A silence that begins in it is measured so much too short at most. */
const PAUSE_MS = 10;

let longestEver = 0;

/** Milliseconds: the longest that any ping of this process took in an attempt that counts. */
export function longestPing(): number {
  return longestEver;
}

type Pinged = Pick<Engine, 'socketPath' | 'pid'>;

/**
 * Runs the attack and pings meanwhile. The longest ping may take a second; since a loaded machine may take longer for
 * reasons of its own, the best of five tries counts.
 */
export async function pingWhile<T>(engine: Pinged, attack: () => Promise<T>): Promise<T> {
  let longest = 0;
  for (let attempt = 1; ; attempt++) {
    const state = { isOver: false };
    const attacked = attack().finally(() => (state.isOver = true));
    // A failure is thrown below, when the last ping is over.
    const ended = attacked.catch(() => undefined);
    longest = 0;
    do {
      longest = Math.max(longest, await ping(engine));
      await Promise.race([ended, sleep(PAUSE_MS)]);
    } while (!state.isOver);
    const result = await attacked;
    if (longest < MAX_PING_MS) {
      longestEver = Math.max(longestEver, longest);
      return result;
    }
    assert.ok(attempt < TRIES, `_ping took ${Math.round(longest)} ms`);
  }
}

/**
 * Milliseconds until the answer, without those in which the daemon's main thread or this one was ready to run and the
 * processors were others'.
 */
async function ping({ socketPath, pid }: Pinged): Promise<number> {
  const readyMs = (): number => waitedMs(pid) + waitedMs(process.pid);
  const start = performance.now() - readyMs();
  assert.equal((await call(socketPath, 'GET', '/_ping')).text, 'OK');
  return Math.max(0, performance.now() - readyMs() - start);
}

/** How long the main thread of a process has waited for a processor so far: the second number of its `schedstat`. */
function waitedMs(pid: number): number {
  const [, waited = 0] = readFileSync(`/proc/${pid}/schedstat`, 'utf8').split(' ').map(Number);
  return waited / 1e6;
}
