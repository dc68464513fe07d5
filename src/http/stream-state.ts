/** The state that the streams of both transports share: their end, and the wait for a client that is behind. */
import { cancelled } from '../errors/engine-error.js';
import type { StreamOwner } from './transport.js';

/** A stream whose writer ignores that the client is behind is cut off when this much waits. */
export const MAX_BEHIND_BYTES = 8 * 1024 * 1024;

export class StreamState {
  readonly #owner: StreamOwner;
  #closed = false;
  #behind = false;
  #gone = false;
  #waiters: { readonly resolve: () => void; readonly reject: (error: Error) => void }[] = [];
  #closeCallbacks: (() => void)[] = [];

  constructor(owner: StreamOwner) {
    this.#owner = owner;
  }

  get closed(): boolean {
    return this.#closed;
  }

  /** True when the client went away, or was cut off, before the end. */
  get gone(): boolean {
    return this.#gone;
  }

  /** Notes that the client does not keep up: `ready` waits until `drained`. */
  fallBehind(): void {
    this.#behind = true;
  }

  drained(): void {
    this.#behind = false;
    const waiters = this.#waiters;
    this.#waiters = [];
    for (const waiter of waiters) waiter.resolve();
  }

  ready(): Promise<void> {
    if (this.#gone) return Promise.reject(clientGone());
    if (!this.#behind || this.#closed) return Promise.resolve();
    return new Promise((resolve, reject) => this.#waiters.push({ resolve, reject }));
  }

  onClose(callback: () => void): void {
    if (this.#closed) callback();
    else this.#closeCallbacks.push(callback);
  }

  /** Ends the stream for its writer and its owner. Idempotent. */
  close(gone: boolean): void {
    if (this.#closed) return;
    this.#closed = true;
    this.#gone = gone;
    const waiters = this.#waiters;
    this.#waiters = [];
    for (const waiter of waiters) {
      if (gone) waiter.reject(clientGone());
      else waiter.resolve();
    }
    this.#owner.settle(gone);
    runAll(this.#closeCallbacks, (error) => this.#owner.report(error));
  }
}

/** Runs every callback, whatever the others throw. */
export function runAll(callbacks: readonly (() => void)[], report: (error: unknown) => void): void {
  for (const callback of callbacks) {
    try {
      callback();
    } catch (error) {
      report(error);
    }
  }
}

export function clientGone(): Error {
  return cancelled('the client closed the connection');
}
