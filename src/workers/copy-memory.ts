/**
 * The memory that the bytes of a copy are received into: up to where it is best to write them, and elsewhere than the
 * bytes that are being written.
 */
import type { WriteBehind } from '../sys/files/write-behind.js';
import { freeBuffer } from '../sys/process/free-buffer.js';
import type { PieceMemory } from './socket-body.js';

/**
 * A write that begins and ends at multiples of 256 KiB takes two thirds of the time of one that does not. Each piece
 * costs something besides.
 */
const BLOCK_BYTES = 512 * 1024;
/** A piece that would be shorter goes on to the end of the next block. */
const LEAST_BYTES = 64 * 1024;

/** One is written, one waits for that, so that the thread that writes does not, and one is received into. */
const BUFFERS = 3;

/**
 * A client that is waited for more often than this, on average, while a piece comes, is slower than one thread: to wake
 * another would take time from the client. `docker cp` is waited for eight or nine times on two processors, a client
 * that has its bytes in memory twice at most.
 */
const MOST_WAITS = 4;
/** The average is that of so many pieces. */
const PIECES = 8;

export class CopyMemory implements PieceMemory {
  readonly enoughBytes = Infinity;
  readonly maySleep = true;
  /** Tells where in its file the next piece begins. */
  filePosition = (): number => 0;
  /** The first one has the last piece. */
  readonly #buffers: Buffer<ArrayBuffer>[] = [];

  #waits = 0;

  /** @param behind writes pieces. */
  constructor(private readonly behind: WriteBehind) {}

  next(waits: number): Buffer {
    this.#waits += (waits - this.#waits) / PIECES;
    const last = this.#buffers[0];
    const buffer = last && !this.behind.uses(last.buffer) ? last : this.#other();
    const left = BLOCK_BYTES - (this.filePosition() % BLOCK_BYTES);
    return buffer.subarray(0, left < LEAST_BYTES ? left + BLOCK_BYTES : left);
  }

  /** Tells whether a piece is to be written behind: it stays as it is until then, and its client is fast. */
  isForBehind(piece: Buffer): boolean {
    return this.#waits <= MOST_WAITS && piece.buffer === this.#buffers[0]?.buffer;
  }

  pause(): void {
    this.behind.pause();
  }

  /** Frees the memory when nothing in it is used any more. */
  free(): void {
    this.behind.abandon();
    for (const buffer of this.#buffers.splice(0)) freeBuffer(buffer);
  }

  #other(): Buffer {
    const oldest = this.#buffers.length === BUFFERS ? this.#buffers.pop() : undefined;
    const buffer = oldest ?? Buffer.allocUnsafeSlow(BLOCK_BYTES + LEAST_BYTES);
    this.#buffers.unshift(buffer);
    this.behind.waitFor(buffer.buffer);
    return buffer;
  }
}
