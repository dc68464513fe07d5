/**
 * Bytes that a client sends in pieces. A piece is a view, which keeps all that came in its message, and a client may
 * put one byte into each message of sixteen mebibytes. So pieces are copied, except one that alone is at least half of
 * what it keeps: the bytes of a small file come so, and a copy of each would be as much garbage as there are files.
 */

/** More than this is not kept for the next bytes. */
const MAX_KEPT_BYTES = 512 * 1024;

export class JoinedPieces {
  #bytes: Buffer = Buffer.alloc(0);
  #length = 0;
  /** The bytes are those of a message, which nothing is written into: they are full, and not used again. */
  #isView = false;

  get length(): number {
    return this.#length;
  }

  /** @param piece stays as it is as long as this has bytes. */
  push(piece: Uint8Array): void {
    if (this.#bytes.length === 0 && piece.length >= piece.buffer.byteLength / 2) this.#keep(piece);
    else this.#copy(piece);
  }

  #keep(piece: Uint8Array): void {
    this.#bytes = Buffer.from(piece.buffer, piece.byteOffset, piece.length);
    this.#length = piece.length;
    this.#isView = true;
  }

  #copy(piece: Uint8Array): void {
    const length = this.#length + piece.length;
    if (length > this.#bytes.length) {
      const larger = Buffer.allocUnsafe(Math.max(length, 2 * this.#bytes.length));
      larger.set(this.#bytes.subarray(0, this.#length));
      this.#bytes = larger;
      this.#isView = false;
    }
    this.#bytes.set(piece, this.#length);
    this.#length = length;
  }

  /** Returns a view of all bytes, which is good until the next `push`. */
  view(): Buffer {
    return this.#bytes.subarray(0, this.#length);
  }

  /** Moves the bytes to a place of their length, and lets go of the messages that they came in. */
  moveTo(place: Buffer): void {
    place.set(this.view());
    this.#bytes = place;
    this.#isView = true;
  }

  /** Begins anew, in the same memory as a rule. */
  clear(): void {
    this.#length = 0;
    if (this.#isView || this.#bytes.length > MAX_KEPT_BYTES) this.#bytes = Buffer.alloc(0);
    this.#isView = false;
  }
}
