/**
 * Counts how much the other end of a port still wants, by its messages. Everything that streams between threads is
 * slowed down by this.
 */
import type { MessagePort } from 'node:worker_threads';

export class Credit {
  #count = 0;
  #isClosed = false;
  #wake: (() => void) | undefined;

  constructor(port: MessagePort) {
    port.on('message', () => {
      this.#count++;
      this.#wake?.();
    });
    port.on('close', () => {
      this.#isClosed = true;
      this.#wake?.();
    });
  }

  /** Waits until a chunk is wanted; false when none ever will be. */
  async take(): Promise<boolean> {
    if (this.#count === 0 && !this.#isClosed) await new Promise<void>((resolve) => (this.#wake = resolve));
    this.#wake = undefined;
    this.#count--;
    return !this.#isClosed;
  }
}
