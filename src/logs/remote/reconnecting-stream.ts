/** A stream to a remote log that is opened again when it breaks. */
import type { Socket } from 'node:net';
import { setTimeout as sleep } from 'node:timers/promises';
import { cancelled, unavailable } from '../../errors/engine-error.js';

/** After all attempts have failed there is one a second, so that no delivery waits for a server that is down. */
const DOWN_MS = 1_000;

export interface ReconnectOptions {
  dial(signal: AbortSignal): Promise<Socket>;
  /** Returns the wait before the n-th further attempt to deliver something, n from 0; undefined: it is given up. */
  retryDelayMs(attempt: number): number | undefined;
}

export class ReconnectingStream {
  #socket: Socket | undefined;
  #downUntilMs = 0;
  #isClosed = false;

  constructor(private readonly options: ReconnectOptions) {}

  /** Connects. @throws what `dial` throws. */
  async open(signal: AbortSignal): Promise<Socket> {
    const socket = await this.options.dial(signal);
    if (this.#isClosed) {
      socket.destroy();
      throw cancelled('the log is closed');
    }
    const lost = (): void => {
      if (this.#socket === socket) this.#socket = undefined;
      socket.destroy();
    };
    // Bytes from the server are dropped here; only listeners of their own need them.
    socket.on('close', lost).on('end', lost).resume();
    this.#socket = socket;
    return socket;
  }

  /**
   * Delivers by `use`, which sends everything over the connection that it gets, and rejects when that breaks. After a
   * failure it is called again with another connection. @throws the last failure when there is no further attempt.
   */
  async deliver(use: (socket: Socket) => Promise<void>, signal: AbortSignal): Promise<void> {
    const isDown = this.#socket === undefined && this.#downUntilMs > 0;
    if (isDown && performance.now() < this.#downUntilMs) throw unavailable('the remote log cannot be reached');
    for (let attempt = 0; ; attempt++) {
      try {
        await use(this.#socket ?? (await this.open(signal)));
        this.#downUntilMs = 0;
        return;
      } catch (error) {
        this.#socket?.destroy();
        this.#socket = undefined;
        const delayMs = isDown || signal.aborted ? undefined : this.options.retryDelayMs(attempt);
        if (delayMs === undefined) {
          this.#downUntilMs = performance.now() + DOWN_MS;
          throw error;
        }
        await sleep(delayMs, undefined, { signal });
      }
    }
  }

  close(): void {
    this.#isClosed = true;
    // Data that were written before are still sent.
    this.#socket?.end();
    this.#socket = undefined;
  }
}

/**
 * Writes the data. Resolves when the kernel has all of it; rejects when the connection breaks or the signal aborts
 * before.
 */
export function writeAll(socket: Socket, data: Buffer, signal: AbortSignal): Promise<void> {
  return new Promise((resolve, reject) => {
    const onAbort = (): void => void socket.destroy(cancelled('the log is closed'));
    signal.addEventListener('abort', onAbort, { once: true });
    const settle = (error?: Error | null): void => {
      signal.removeEventListener('abort', onAbort);
      socket.removeListener('close', onClose);
      if (error) reject(error);
      else resolve();
    };
    const onClose = (): void => settle(unavailable('the connection to the remote log was lost'));
    socket.once('close', onClose);
    socket.write(data, settle);
  });
}
