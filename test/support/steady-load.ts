/** Clients that go on while a daemon is replaced, and count what they miss. */
import { connect } from 'node:net';
import { setTimeout as delay } from 'node:timers/promises';
import { call } from './http.js';

export interface Misses {
  /** How many were made. */
  readonly made: number;
  readonly failures: readonly string[];
  /** The longest wait for an answer. */
  readonly longestMs: number;
  /** How many were made in a second. */
  readonly perSecond: number;
}

export interface SteadyLoad {
  /** Ends the load; resolves when all answers are there. */
  end(): Promise<Misses>;
}

/**
 * More than wait while a daemon is replaced. A machine that cannot keep up would have ever more of them, of which each
 * takes ever longer: further ones are left out there.
 */
const MOST_OPEN = 200;

/**
 * Does something every so many milliseconds, whether or not earlier ones have an answer, up to `mostOpen` of them at a
 * time. A timer that comes late makes up for it, so that there are as many in a second as were asked for.
 */
export function repeat(intervalMs: number, once: () => Promise<void>, mostOpen = MOST_OPEN): SteadyLoad {
  const failures: string[] = [];
  const open = new Set<Promise<void>>();
  let [due, made, longestMs] = [0, 0, 0];
  const since = performance.now();
  const begin = (): void => {
    if (open.size >= mostOpen) return;
    made++;
    const start = performance.now();
    const one = once()
      .catch(
        (error: unknown) => void failures.push(`after ${Math.round(performance.now() - start)} ms: ${describe(error)}`),
      )
      .then(() => {
        longestMs = Math.max(longestMs, performance.now() - start);
        open.delete(one);
      });
    open.add(one);
  };
  const timer = setInterval(() => {
    for (; due < (performance.now() - since) / intervalMs - 0.5; due++) begin();
  }, intervalMs);
  return {
    end: async () => {
      clearInterval(timer);
      const perSecond = made / ((performance.now() - since) / 1000);
      while (open.size > 0) await Promise.race([Promise.all(open), delay(50)]);
      return { made, failures, longestMs, perSecond };
    },
  };
}

/** Requests over a socket file, each on a connection of its own. */
export function requests(socketPath: string, path: string, perSecond: number, mostOpen?: number): SteadyLoad {
  const once = async (): Promise<void> => {
    const { status } = await call(socketPath, 'GET', path);
    if (status !== 200) throw new Error(`status ${status}`);
  };
  return repeat(1000 / perSecond, once, mostOpen);
}

/** Connects to a port and waits for what the server there says. */
export function probe(host: string, port: number, expected: string, path = '/'): Promise<void> {
  return new Promise((resolve, reject) => {
    let text = '';
    const socket = connect({ host, port }, () => void socket.write(`GET ${path} HTTP/1.0\r\n\r\n`));
    socket.on('data', (data) => (text += data.toString()));
    socket.on('error', reject);
    socket.on('close', () => (text.includes(expected) ? resolve() : reject(new Error(`said ${JSON.stringify(text)}`))));
  });
}

/** Returns the text of an error with that of its cause, in which `fetch` hides what has happened. */
function describe(error: unknown): string {
  const cause = error instanceof Error && error.cause instanceof Error ? `: ${error.cause.message}` : '';
  return String(error) + cause;
}
