/** The memory that the bytes of a copy are received into: up to where it is best to write them. */
import { freeBuffer } from '../sys/process/free-buffer.js';
import type { PieceMemory } from './socket-body.js';

/**
 * A write that begins and ends at multiples of 256 KiB takes two thirds of the time of one that does not. Each piece
 * costs something besides.
 */
const BLOCK_BYTES = 512 * 1024;
/** A piece that would be shorter goes on to the end of the next block. */
const LEAST_BYTES = 64 * 1024;

export class CopyMemory implements PieceMemory {
  readonly enoughBytes = Infinity;
  readonly maySleep = true;
  /** Tells where in its file the next piece begins. */
  filePosition = (): number => 0;
  #buffer: Buffer<ArrayBuffer> | undefined;

  next(): Buffer {
    this.#buffer ??= Buffer.allocUnsafeSlow(BLOCK_BYTES + LEAST_BYTES);
    const left = BLOCK_BYTES - (this.filePosition() % BLOCK_BYTES);
    return this.#buffer.subarray(0, left < LEAST_BYTES ? left + BLOCK_BYTES : left);
  }

  free(): void {
    if (this.#buffer) freeBuffer(this.#buffer);
    this.#buffer = undefined;
  }
}
