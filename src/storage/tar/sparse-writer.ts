/** Writes a file front to back and leaves holes where it is zero. For worker threads. */
import { closeSync, ftruncateSync, writeSync } from 'node:fs';
import { SpaceAhead } from '../../sys/files/space-ahead.js';
import type { WriteBehind } from '../../sys/files/write-behind.js';

/** Zeros are looked for in pieces of this size, because a hole is made of whole blocks of the file system. */
const BLOCK_BYTES = 64 * 1024;
/** Less is written sooner than handed on. */
const LEAST_BEHIND_BYTES = 256 * 1024;
const ZEROS = Buffer.alloc(BLOCK_BYTES);

export class SparseWriter {
  #at = 0;
  #writtenTo = 0;

  readonly #space: SpaceAhead;

  /**
   * @param fd an empty file, which belongs to the writer from now on.
   * @param sizeBytes as many bytes are to come.
   * @param upperGains as for SpaceAhead.
   * @param behind writes what is lent.
   */
  constructor(
    readonly fd: number,
    sizeBytes: number,
    upperGains = false,
    private readonly behind?: WriteBehind,
  ) {
    this.#space = new SpaceAhead(fd, sizeBytes, upperGains);
  }

  /**
   * @param isLent the chunk stays as it is until `behind` has written it; else it may be reused at once.
   * @throws the errno error of this write, or of one before.
   */
  write(chunk: Buffer, start: number, end: number, isLent = false): void {
    let from = start;
    while (from < end) {
      // The steps are those of the file, not of the chunk.
      const to = Math.min(end, from + BLOCK_BYTES - (this.#at % BLOCK_BYTES));
      if (!isZero(chunk, from, to)) {
        const last = this.#dataEnd(chunk, to, end, this.#at + to - from);
        this.#put(chunk, from, last, isLent);
        from = last;
      } else {
        this.#at += to - from;
        from = to;
      }
    }
  }

  /** Bytes that the file has so far, with its holes. */
  get position(): number {
    return this.#at;
  }

  /** Gives the file its whole length. @throws as `write`. */
  finish(): void {
    this.behind?.settle();
    if (this.#at === this.#writtenTo) return;
    this.#space.giveBack();
    ftruncateSync(this.fd, this.#at);
  }

  close(): void {
    this.behind?.abandon();
    this.#space.giveBack();
    closeSync(this.fd);
  }

  /** Returns where the data that begins before `from` ends: blocks that are not zero are written in one go. */
  #dataEnd(chunk: Buffer, from: number, end: number, filePosition: number): number {
    let position = filePosition;
    for (let at = from; at < end;) {
      const to = Math.min(end, at + BLOCK_BYTES - (position % BLOCK_BYTES));
      if (isZero(chunk, at, to)) return at;
      position += to - at;
      at = to;
    }
    return end;
  }

  #put(chunk: Buffer, from: number, to: number, isLent: boolean): void {
    // Space behind the data is given back before a hole, which would cut off what is on its way.
    if (this.#at !== this.#writtenTo) this.behind?.settle();
    if (this.behind && isLent && to - from >= LEAST_BEHIND_BYTES) {
      this.#space.willWrite(this.#at, this.#at + to - from);
      this.behind.write(this.fd, chunk.subarray(from, to), this.#at);
      this.#at += to - from;
    } else this.#putNow(chunk, from, to);
    this.#writtenTo = this.#at;
  }

  #putNow(chunk: Buffer, from: number, to: number): void {
    for (let at = from; at < to;) {
      this.#space.willWrite(this.#at, this.#at + to - at);
      const count = writeSync(this.fd, chunk, at, to - at, this.#at);
      at += count;
      this.#at += count;
    }
  }
}

function isZero(chunk: Buffer, from: number, to: number): boolean {
  return chunk[from] === 0 && chunk.compare(ZEROS, 0, to - from, from, to) === 0;
}
