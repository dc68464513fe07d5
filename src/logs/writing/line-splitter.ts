/** Cuts what one stream of a container prints into lines, and lines that are too long into pieces. */
import { randomBytes } from 'node:crypto';
import { MAX_LINE_BYTES, type Piece } from '../drivers/record-format.js';

const NEWLINE = 10;

/** Takes one line or piece of a line: source[from, to), without the newline. */
export type LineSink = (source: Buffer, from: number, to: number, piece: Piece | undefined) => void;

export class LineSplitter {
  #pending: Buffer | undefined;
  #pendingLength = 0;
  #lineId = '';
  #ordinal = 0;

  /** True when the next byte begins a line. */
  get isAtLineStart(): boolean {
    return this.#pendingLength === 0 && this.#ordinal === 0;
  }

  /** True when all that was taken has been passed on. */
  get isEmpty(): boolean {
    return this.#pendingLength === 0;
  }

  /**
   * Passes on at most one line or piece, and returns how far the chunk was taken. A part that is neither complete nor
   * long enough is kept for the next chunk.
   */
  take(chunk: Buffer, from: number, sink: LineSink): number {
    const kept = this.#pendingLength;
    const room = MAX_LINE_BYTES - kept;
    const newline = chunk.indexOf(NEWLINE, from);
    const lineEnd = newline < 0 ? chunk.length : newline;
    if (lineEnd - from >= room) {
      this.#emit(chunk, from, from + room, false, sink);
      return from + room;
    }
    if (newline >= 0) {
      this.#emit(chunk, from, newline, true, sink);
      return newline + 1;
    }
    this.#keep(chunk, from, lineEnd);
    return lineEnd;
  }

  /** Passes on what is left at the end of the stream: a last line without a newline. */
  end(sink: LineSink): void {
    if (this.#pendingLength > 0) this.#emit(Buffer.alloc(0), 0, 0, false, sink);
    this.#pending = undefined;
  }

  #emit(chunk: Buffer, from: number, to: number, isComplete: boolean, sink: LineSink): void {
    const piece = this.#piece(isComplete);
    if (this.#pendingLength === 0) return sink(chunk, from, to, piece);
    const length = this.#keep(chunk, from, to);
    this.#pendingLength = 0;
    sink(this.#pending ?? chunk, 0, length, piece);
  }

  #piece(isLast: boolean): Piece | undefined {
    if (isLast && this.#ordinal === 0) return undefined;
    if (this.#ordinal === 0) this.#lineId = randomBytes(32).toString('hex');
    const piece = { id: this.#lineId, ordinal: ++this.#ordinal, isLast };
    if (isLast) this.#ordinal = 0;
    return piece;
  }

  #keep(chunk: Buffer, from: number, to: number): number {
    // The buffer grows as needed, because most containers never print such a long line in parts.
    const needed = this.#pendingLength + to - from;
    if (!this.#pending || this.#pending.length < needed) {
      const grown = Buffer.allocUnsafeSlow(Math.min(MAX_LINE_BYTES, Math.max(1024, needed * 2)));
      this.#pending?.copy(grown, 0, 0, this.#pendingLength);
      this.#pending = grown;
    }
    chunk.copy(this.#pending, this.#pendingLength, from, to);
    this.#pendingLength = needed;
    return needed;
  }
}
