/**
 * Entries that may still be in a FIFO. The kernel keeps what a reader has not taken when it dies, but not where an
 * entry begins, and the next reader must not get the end of one that the last one has taken half of.
 */
export class SentEntries {
  #entries: Buffer[] = [];
  #bytes = 0;

  /** Notes entries that are about to be written. */
  add(entries: readonly Buffer[]): void {
    for (const entry of entries) {
      this.#entries.push(entry);
      this.#bytes += entry.length;
    }
  }

  /** Forgets what cannot be in the FIFO any more, since all is written. @param capacity is the room in the FIFO. */
  written(capacity: number): void {
    let gone = 0;
    for (const { length } of this.#entries) {
      if (this.#bytes - length < capacity) break;
      this.#bytes -= length;
      gone++;
    }
    this.#entries.splice(0, gone);
  }

  /**
   * Returns the entries that nobody has taken as a whole, in their order, and forgets all.
   * @param left is what was in the FIFO. @param unwritten are the last ones, whose writing failed at whatever byte.
   */
  takeBack(left: Buffer, unwritten: readonly Buffer[]): readonly Buffer[] {
    const entries = this.#entries;
    this.#entries = [];
    this.#bytes = 0;
    const at = left.length === 0 ? -1 : Buffer.concat(entries).lastIndexOf(left);
    if (at < 0) return unwritten;
    let end = 0;
    return entries.slice(entries.findIndex(({ length }) => (end += length) > at));
  }
}
