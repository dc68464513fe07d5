/**
 * The output of a process, read from its FIFO. It can be kept in a spool until it is logged: then it goes from the pipe
 * into the spool's file and from there to us.
 */
import { closeSync, constants, openSync, readSync } from 'node:fs';
import { Readable } from 'node:stream';
import { watchReadable, type ReadableWatch } from '../sys/files/fd.js';

/** A pipe has as much. */
export const PIECE_BYTES = 64 << 10;

/** Takes output from a FIFO and keeps it. */
export interface PieceKeeper {
  /** True when nothing may be taken now; `onceRoom` tells when it may. */
  readonly isFull: boolean;
  onceRoom(callback: () => void): void;
  /** Returns what is in the FIFO: undefined when nothing is there yet, no bytes when its writers are gone. */
  take(fifo: number): Buffer | undefined;
}

export class FifoOutput extends Readable {
  readonly #fd: number;
  #isEnded: boolean;
  #keeper: PieceKeeper = UNKEPT;
  #watch: ReadableWatch | undefined;
  #isPaused = false;

  /**
   * @param isEnded the process has ended already, and nobody is told of an end whose writer was gone before the FIFO
   * was opened: it is looked for at once. Else the output ends when the last writer has gone, but not before there was
   * one.
   * @throws the error of open(2) with its `code`, such as ENOENT.
   */
  constructor(path: string, isEnded = false) {
    super({ highWaterMark: PIECE_BYTES });
    this.#fd = openSync(path, constants.O_RDONLY | constants.O_NONBLOCK);
    this.#isEnded = isEnded;
    // A failure must not end the daemon if there is no other listener; 'close' follows.
    this.on('error', () => {});
  }

  /** Passes on `before`, and takes what follows through a keeper, if any. Call it before anything is read. */
  keepIn(keeper: PieceKeeper | undefined, before: Buffer): void {
    if (keeper !== undefined) this.#keeper = keeper;
    if (before.length > 0) this.push(before);
  }

  override _read(): void {
    if (this.#watch !== undefined) return this.#resume();
    this.#watch = watchReadable(this.#fd, () => this.#pass());
    if (!this.#isEnded) return;
    this.#isEnded = false;
    this.#pass();
  }

  override _destroy(error: Error | null, callback: (error: Error | null) => void): void {
    this.#watch?.close();
    closeSync(this.#fd);
    callback(error);
  }

  #pass(): void {
    if (this.destroyed || this.#isPaused) return;
    if (this.#keeper.isFull) {
      this.#pause();
      return this.#keeper.onceRoom(() => this.#resume());
    }
    let piece: Buffer | undefined;
    try {
      piece = this.#keeper.take(this.#fd);
    } catch (error) {
      this.destroy(error as Error);
      return;
    }
    if (piece === undefined) return;
    // After the end there is nothing to wait for.
    if (!this.push(piece.length === 0 ? null : piece)) this.#pause();
  }

  #pause(): void {
    if (this.#isPaused || this.destroyed) return;
    this.#isPaused = true;
    this.#watch?.pause();
  }

  #resume(): void {
    if (!this.#isPaused || this.destroyed) return;
    this.#isPaused = false;
    this.#watch?.resume();
  }
}

const UNKEPT: PieceKeeper = { isFull: false, onceRoom: () => undefined, take: readPiece };

/** All FIFOs share this buffer, because what is read is copied out before the next read. */
const taken = Buffer.allocUnsafeSlow(PIECE_BYTES);

/** Reads what is in a pipe, as `take` does. It does not block. */
export function readPiece(fifo: number): Buffer | undefined {
  try {
    return Buffer.from(taken.subarray(0, readSync(fifo, taken, 0, PIECE_BYTES, null)));
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'EAGAIN') return undefined;
    throw error;
  }
}
