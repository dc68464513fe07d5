/**
 * Bytes that a client sends in pieces. They are copied: a piece is a view, which keeps all that came in its message,
 * and a client may put one byte into each message of sixteen mebibytes.
 */

/** More than this is not kept for the next bytes. */
const MAX_KEPT_BYTES = 512 * 1024;

export class JoinedPieces {
  #bytes = Buffer.alloc(0);
  #length = 0;

  get length(): number {
    return this.#length;
  }

  push(piece: Uint8Array): void {
    const length = this.#length + piece.length;
    if (length > this.#bytes.length) {
      const larger = Buffer.allocUnsafe(Math.max(length, 2 * this.#bytes.length));
      larger.set(this.#bytes.subarray(0, this.#length));
      this.#bytes = larger;
    }
    this.#bytes.set(piece, this.#length);
    this.#length = length;
  }

  /** Returns a view of all bytes, which is good until the next `push`. */
  view(): Buffer {
    return this.#bytes.subarray(0, this.#length);
  }

  /** Begins anew, in the same memory as a rule. */
  clear(): void {
    this.#length = 0;
    if (this.#bytes.length > MAX_KEPT_BYTES) this.#bytes = Buffer.alloc(0);
  }
}
