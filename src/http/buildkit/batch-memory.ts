/**
 * Memory for batches of small files on their way to a thread that writes them. It is shared with that thread and used
 * again: what is new is cleared by the kernel page by page, and the files of a context would fill as much as they are.
 */

/** So many are on their way at once as a rule. */
const MAX_KEPT = 5;

export class BatchMemory {
  readonly #bytes: number;
  readonly #free: SharedArrayBuffer[] = [];

  /** @param bytes the size of the largest batch. */
  constructor(bytes: number) {
    this.#bytes = bytes;
  }

  take(): SharedArrayBuffer {
    return this.#free.pop() ?? new SharedArrayBuffer(this.#bytes);
  }

  /** @param memory is used by nobody any more. */
  giveBack(memory: SharedArrayBuffer): void {
    if (this.#free.length < MAX_KEPT) this.#free.push(memory);
  }
}
