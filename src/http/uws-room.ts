/**
 * uWebSockets.js collects what is written in one of its callbacks ("cork") in a buffer of 16 KB. When that is full it
 * writes to the socket. If the socket takes less than all, the piece that did not fit is lost, or the reply is never
 * complete and the library ends the process. So nothing more is written in a callback than the buffer holds.
 */

/** The rest of the buffer is for what the library adds itself. */
const ROOM_BYTES = 14 * 1024;

export class UwsRoom {
  #taken = 0;
  #isFlushAwaited = false;

  /** Returns false when the bytes must be written outside of the library's callbacks: on the next poll. */
  take(bytes: number): boolean {
    const fits = this.#taken + bytes <= ROOM_BYTES;
    if (fits) this.#taken += bytes;
    // At the end of its callbacks, before any immediate action, the library writes what it has collected. To wait for
    // that after each reply would cost too much.
    if (this.#taken > ROOM_BYTES / 8 && !this.#isFlushAwaited) {
      this.#isFlushAwaited = true;
      setImmediate(() => {
        this.#isFlushAwaited = false;
        this.#taken = 0;
      });
    }
    return fits;
  }
}
