/**
 * uWebSockets.js collects what is written in one of its callbacks ("cork") in a buffer of 16 KB. When that is full it
 * writes to the socket. If the socket takes less than all, the piece that did not fit is lost, or the reply is never
 * complete and the library ends the process. So nothing more is written in a callback than the buffer holds.
 */

/** The rest of the buffer is for what the library adds itself. */
const ROOM_BYTES = 14 * 1024;

/** Ends of turns that were awaited. At the end of its callbacks, so before that, the library writes what it has. */
let ended = 0;
let isEndAwaited = false;

function awaitEnd(): void {
  if (isEndAwaited) return;
  isEndAwaited = true;
  setImmediate(() => {
    isEndAwaited = false;
    ended++;
  });
}

/** The room of one connection. */
export class UwsRoom {
  #taken = 0;
  /** The count of ends when the first of these bytes were taken. */
  #since = 0;

  /** Returns false when the bytes must be written outside of the library's callbacks: on the next poll. */
  take(bytes: number): boolean {
    if (this.#since !== ended) {
      this.#since = ended;
      this.#taken = 0;
    }
    const fits = this.#taken + bytes <= ROOM_BYTES;
    if (fits) this.#taken += bytes;
    // To wait for an end after each reply would cost too much.
    if (this.#taken > ROOM_BYTES / 8) awaitEnd();
    return fits;
  }
}
