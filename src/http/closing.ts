/** The end of a listener's connections and of the requests that are in flight then. */
import { setImmediate as setImmediateAsync, setTimeout as setTimeoutAsync } from 'node:timers/promises';
import { awake } from '../text/awake.js';
import type { Gate } from './gate.js';

/**
 * A client that has connected sends its request at once. A close waits for it this long when the connection cannot be
 * passed to a next process.
 */
export const FIRST_REQUEST_MS = 1000;
/** Requests that wait for others, and have no beginning of a reply, may take so many times the limit of a close. */
const WAITING_LIMITS = 5;
/**
 * The daemon's own work may take so many times that limit. It has an end, which is worth more than an early next
 * process: a request that changes something may be done already, and only its reply wait for a slow disk.
 */
const WORKING_LIMITS = 20;
/** Pause between looks at the replies that are still being sent. */
const REPLYING_MS = 2;

export interface CloseOptions {
  /** Replies that follow a container end by themselves then, and get the limit for it. */
  readonly containersEnded?: boolean;
}

export class Closing {
  readonly #over = new AbortController();

  constructor(private readonly gate: Gate) {}

  /** Ends connections without a request, new ones after a second. */
  endIdle(): void {
    const { gate } = this;
    for (const connection of gate.connections) {
      if (connection.idle && !gate.isFresh(connection)) connection.close();
    }
    void awake(FIRST_REQUEST_MS, this.#over.signal).then(() => {
      for (const connection of gate.connections) if (gate.isFresh(connection)) connection.close();
    });
  }

  /** Waits until the daemon itself works on no request that it has not begun to answer, and none is awaited. */
  async workDone(limitMs: number): Promise<void> {
    const giveUpAt = performance.now() + WORKING_LIMITS * limitMs;
    while (this.#isWorking && performance.now() < giveUpAt) await setTimeoutAsync(REPLYING_MS);
  }

  /** Ends what follows something, connections with a request with their reply, and all of them after the limit. */
  async drain(limitMs: number, { containersEnded = false }: CloseOptions = {}): Promise<void> {
    const { gate } = this;
    // All others would wait for the next process meanwhile, to which these clients come back.
    for (const exchange of gate.pending)
      if (exchange.isEndless && !(containersEnded && exchange.followsContainer)) exchange.abort();
    const idleWithin = (ms: number): Promise<void> => Promise.race([gate.idle(), awake(ms, this.#over.signal)]);
    await idleWithin(limitMs);
    for (const exchange of gate.pending) if (exchange.summary().phase !== 'open') exchange.abort();
    await idleWithin(WAITING_LIMITS * limitMs - limitMs);
    for (const exchange of gate.pending) if (exchange.waitsForOthers) exchange.abort();
    await idleWithin((WORKING_LIMITS - WAITING_LIMITS) * limitMs);
    const giveUpAt = performance.now() + limitMs;
    this.#over.abort();
    for (const exchange of gate.pending) exchange.abort();
    // Large replies are with the HTTP library for longer than their handlers run.
    while (this.#isReplying && performance.now() < giveUpAt) await setTimeoutAsync(REPLYING_MS);
    // The last replies leave the HTTP library's buffer when its turn of the event loop ends.
    await setImmediateAsync();
    for (const connection of gate.connections) connection.close();
  }

  get #isWorking(): boolean {
    const { gate } = this;
    for (const connection of gate.connections) if (gate.isFresh(connection)) return true;
    for (const exchange of gate.pending)
      if (exchange.summary().phase === 'open' && !exchange.waitsForOthers) return true;
    return false;
  }

  get #isReplying(): boolean {
    for (const { idle } of this.gate.connections) if (!idle) return true;
    return false;
  }
}
