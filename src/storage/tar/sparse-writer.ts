/** Writes a file front to back and leaves holes where it is zero. Synchronous, for worker threads. */
import { closeSync, ftruncateSync } from 'node:fs';
import { writeWhole } from '../lent-writer.js';

/** Zeros are looked for in pieces of this size, because a hole is made of whole blocks of the file system. */
const BLOCK_BYTES = 64 * 1024;
const ZEROS = Buffer.alloc(BLOCK_BYTES);

/** Writes parts of files, at once or while the caller goes on. */
export interface FileWriter {
  /** Writes a part of a chunk at a position. @throws the error of this write, or of an earlier one. */
  write(fd: number, chunk: Buffer, from: number, to: number, position: number): void;
  /** Waits until all is written. @throws the error of a write. */
  settle(): void;
}

const AT_ONCE: FileWriter = { write: writeWhole, settle: () => undefined };

export class SparseWriter {
  #at = 0;
  #writtenTo = 0;

  /**
   * @param fd an empty file, which belongs to the writer from now on.
   * @param writer writes what is no hole.
   */
  constructor(
    readonly fd: number,
    private readonly writer: FileWriter = AT_ONCE,
  ) {}

  write(chunk: Buffer, start: number, end: number): void {
    let from = start;
    while (from < end) {
      // The steps are those of the file, not of the chunk.
      const to = Math.min(end, from + BLOCK_BYTES - (this.#at % BLOCK_BYTES));
      if (!isZero(chunk, from, to)) {
        const last = this.#dataEnd(chunk, to, end, this.#at + to - from);
        this.#put(chunk, from, last);
        from = last;
      } else {
        this.#at += to - from;
        from = to;
      }
    }
  }

  /** Gives the file its whole length, when all of it is written. @throws the error of a write. */
  finish(): void {
    this.writer.settle();
    if (this.#at > this.#writtenTo) ftruncateSync(this.fd, this.#at);
  }

  /** Nothing is being written to it any more then. */
  close(): void {
    try {
      this.writer.settle();
    } catch {
      // It is that of a file that is given up.
    } finally {
      closeSync(this.fd);
    }
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

  #put(chunk: Buffer, from: number, to: number): void {
    this.writer.write(this.fd, chunk, from, to, this.#at);
    this.#at += to - from;
    this.#writtenTo = this.#at;
  }
}

function isZero(chunk: Buffer, from: number, to: number): boolean {
  return chunk[from] === 0 && chunk.compare(ZEROS, 0, to - from, from, to) === 0;
}
