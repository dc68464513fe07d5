/**
 * The output of a process, read from its FIFO. It can be kept in a spool until it is logged: then it goes from the pipe
 * into the spool's file and from there to us.
 */
import { closeSync, constants, openSync, readSync } from 'node:fs';
import { Readable } from 'node:stream';
import { PIECE_BYTES } from '../../sys/files/piece-pool.js';
import { setPipeRoom, watchReadable, type ReadableWatch } from '../../sys/files/fd.js';

/** A pipe has as much at first. */
const PIPE_BYTES = 64 << 10;
/** The pipe of a flood gets so much room. Nobody needs a privilege for it (/proc/sys/fs/pipe-max-size). */
const FLOOD_PIPE_BYTES = 1 << 20;
/**
 * The shim writes 4 KiB at a time, and each of them would be a turn of ours, which costs much more than its bytes. So
 * an output of this many bytes within this time is left alone for the length of a rest, and is a large piece then. What
 * prints less, such as a program that answers questions, is never waited for.
 */
const FLOOD_BYTES = 16 << 10;
const FLOOD_MS = 4;
const REST_MS = 2;

/** Takes output from a FIFO and keeps it. */
export interface PieceKeeper {
  /** True when nothing may be taken now; `onceRoom` tells when it may. */
  readonly isFull: boolean;
  onceRoom(callback: () => void): void;
  /**
   * Returns what is in the FIFO: undefined when nothing is there yet, no bytes when its writers are gone. The piece may
   * be given back to the pool of pieces.
   */
  take(fifo: number): Buffer | undefined;
}

/** Emits 'flood' when it leaves a flood alone for the length of a rest. */
export class FifoOutput extends Readable {
  readonly #fd: number;
  #isEnded: boolean;
  #keeper: PieceKeeper = UNKEPT;
  #watch: ReadableWatch | undefined;
  #isPaused = false;
  #isListening = true;
  /** While it is set, output gathers in the pipe. */
  #rest: NodeJS.Timeout | undefined;
  /** Undefined until there is a flood. */
  #hasRoom: boolean | undefined;
  #countedBytes = 0;
  #countedFrom = 0;

  /**
   * @param isEnded the process has ended already, and nobody is told of an end whose writer was gone before the FIFO
   * was opened: it is looked for at once. Else the output ends when the last writer has gone, but not before there was
   * one.
   * @throws the error of open(2) with its `code`, such as ENOENT.
   */
  constructor(path: string, isEnded = false) {
    super({ highWaterMark: PIPE_BYTES });
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
    clearTimeout(this.#rest);
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
    if (piece === undefined) return this.#listen();
    // After the end there is nothing to wait for.
    if (!this.push(piece.length === 0 ? null : piece)) this.#pause();
    if (this.#isFlood(piece.length)) this.#gather();
    else this.#listen();
  }

  #pause(): void {
    if (this.#isPaused || this.destroyed) return;
    this.#isPaused = true;
    this.#listen();
  }

  #resume(): void {
    if (!this.#isPaused || this.destroyed) return;
    this.#isPaused = false;
    this.#listen();
  }

  /** Has the event loop tell of output, or not. */
  #listen(): void {
    const isWanted = !this.#isPaused && this.#rest === undefined;
    if (isWanted === this.#isListening || this.destroyed) return;
    this.#isListening = isWanted;
    if (isWanted) this.#watch?.resume();
    else this.#watch?.pause();
  }

  /** Counts what is taken. Nothing rests without a keeper: non-blocking mode drops what comes in too large a piece. */
  #isFlood(bytes: number): boolean {
    if (this.#keeper === UNKEPT || bytes === 0) return false;
    const now = performance.now();
    if (now - this.#countedFrom > FLOOD_MS) {
      this.#countedFrom = now;
      this.#countedBytes = 0;
    }
    this.#countedBytes += bytes;
    // A full piece has more behind it.
    if (this.#countedBytes < FLOOD_BYTES || bytes >= PIECE_BYTES) return false;
    this.#hasRoom ??= makeRoom(this.#fd);
    return this.#hasRoom;
  }

  /** Leaves the output alone for a while. */
  #gather(): void {
    if (this.destroyed) return;
    this.emit('flood');
    this.#rest = setTimeout(() => {
      this.#rest = undefined;
      if (this.#isPaused) return;
      // More of a flood is looked for at once, for the loop tells of it only a turn later.
      this.#pass();
    }, REST_MS);
    this.#listen();
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

/** Returns false when it may have none. */
function makeRoom(fifo: number): boolean {
  try {
    setPipeRoom(fifo, FLOOD_PIPE_BYTES);
    return true;
  } catch {
    // This user's pipes have too much already (/proc/sys/fs/pipe-user-pages-soft): the output is read as it comes.
    return false;
  }
}
