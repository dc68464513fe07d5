/**
 * A line of small files on their way from the thread that reads them to one that writes them, in memory that both have:
 * the time of copying a small file is that of its system calls, which two processors share this way. Synchronous, for
 * worker threads.
 *
 * The memory is a ring of records behind a few numbers. The reader puts a record at the head, the writer takes one from
 * the tail; both are places in bytes that only grow, as 32 bits. A record is in one piece:
 *
 *   its length, of which 8 is a factor; the length of the path, 0 for a gap at the end of the ring; the size of the
 *   file; uid; gid; mode; nanoseconds of the time (4 bytes each), its seconds (8 bytes, a double); path; content
 *
 * Nobody waits for a writer that has not come: until it has, the reader writes by itself.
 *
 * To wake a thread costs as much as a file. So one that waits says so in a number of its own, which whoever wakes it
 * takes back, and it is woken when there is work for a while: the writer for several files, the reader for half of the
 * ring.
 */
import { internal } from '../../errors/engine-error.js';
import type { Look } from '../../storage/copy-regular.js';

const RING_BYTES = 1024 * 1024;
const NUMBERS_BYTES = 64;
const HEAD_BYTES = 36;
/** A writer is called after so many files, since a thread takes as long to come. */
const WORTH_A_WRITER = 64;
/** A writer that waits is woken for so many bytes. */
const WORTH_WAKING_BYTES = RING_BYTES / 4;
/** A thread that waits looks by itself after this time, for few files that nothing comes behind. */
const LOOK_AGAIN_MS = 100;

/** Places of the numbers. */
const HEAD = 0;
const TAIL = 1;
/** 1: a writer has come. */
const WRITER = 2;
/** 1: it has failed. */
const FAILED = 3;
/** 1: nothing more comes. */
const ENDED = 4;
/** 1: a file has become another one than was told. */
const UNLIKE = 5;
/** 1: the writer waits. */
const WRITER_WAITS = 6;
/** 1: the reader waits. */
const READER_WAITS = 7;

/** A file that is to be made. */
export interface LineFile extends Look {
  /** Byte string. It is free, in a directory that nobody else changes. */
  readonly path: string;
  /** The last change: seconds since 1970, and nanoseconds. */
  readonly time: readonly [seconds: number, nanoseconds: number];
}

/** The end of the line that is the reader's. */
export class FileLine {
  readonly #call: (memory: SharedArrayBuffer) => void;
  #memory: SharedArrayBuffer | undefined;
  #numbers: Int32Array = new Int32Array(0);
  #ring: Buffer = Buffer.alloc(0);
  #files = 0;

  /** @param call asks for a thread that runs `writeLine` on the memory. */
  constructor(call: (memory: SharedArrayBuffer) => void) {
    this.#call = call;
  }

  /** Tells whether a writer is there. Call it for each file: when there are many, one is called. */
  isManned(): boolean {
    if (this.#memory !== undefined) return Atomics.load(this.#numbers, WRITER) === 1;
    if (++this.#files < WORTH_A_WRITER) return false;
    this.#memory = new SharedArrayBuffer(NUMBERS_BYTES + RING_BYTES);
    this.#numbers = numbersOf(this.#memory);
    this.#ring = ringOf(this.#memory);
    this.#call(this.#memory);
    return false;
  }

  /**
   * Puts a file into the line.
   * @param read fills the memory with the content and returns its size, or -1 when the file is none for the line.
   * @returns the content, valid until the next call; undefined when nothing was put.
   * @throws EngineError when the writer has failed.
   */
  put(file: LineFile, maxBytes: number, read: (place: Buffer) => number): Buffer | undefined {
    const at = this.#room(HEAD_BYTES + file.path.length + maxBytes + 8);
    const start = at + HEAD_BYTES + file.path.length;
    const sizeBytes = read(this.#ring.subarray(start, start + maxBytes));
    if (sizeBytes < 0) return undefined;
    const length = (HEAD_BYTES + file.path.length + sizeBytes + 7) & ~7;
    const ring = this.#ring;
    const { path, uid, gid, mode, time } = file;
    [length, path.length, sizeBytes, uid, gid, mode, time[1]].forEach((n, place) =>
      ring.writeUInt32LE(n, at + place * 4),
    );
    ring.writeDoubleLE(time[0], at + 28);
    ring.write(path, at + HEAD_BYTES, 'latin1');
    this.#publish(length);
    return ring.subarray(start, start + sizeBytes);
  }

  /**
   * Waits until all files are written. Returns false when one has become another one than was told.
   * @throws EngineError when the writer has failed.
   */
  drain(): boolean {
    if (this.#memory === undefined || Atomics.load(this.#numbers, WRITER) !== 1) return true;
    this.#waitFor(RING_BYTES);
    return Atomics.load(this.#numbers, UNLIKE) === 0;
  }

  /** Lets the writer go. */
  end(): void {
    if (this.#memory) endLine(this.#memory);
  }

  /** Returns the place of so many bytes in one piece. */
  #room(bytes: number): number {
    const at = Atomics.load(this.#numbers, HEAD) & (RING_BYTES - 1);
    const rest = RING_BYTES - at;
    if (rest >= bytes) {
      this.#waitFor(bytes);
      return at;
    }
    this.#waitFor(rest + bytes);
    this.#ring.writeUInt32LE(rest, at);
    this.#ring.writeUInt32LE(0, at + 4);
    this.#publish(rest);
    return 0;
  }

  #publish(bytes: number): void {
    const head = (Atomics.add(this.#numbers, HEAD, bytes) + bytes) | 0;
    if (((head - Atomics.load(this.#numbers, TAIL)) | 0) >= WORTH_WAKING_BYTES) wake(this.#numbers, WRITER_WAITS);
  }

  /** Waits until so many bytes of the ring are free. */
  #waitFor(bytes: number): void {
    for (;;) {
      const tail = Atomics.load(this.#numbers, TAIL);
      if (Atomics.load(this.#numbers, FAILED) === 1) throw internal('files could not be written');
      if (RING_BYTES - ((Atomics.load(this.#numbers, HEAD) - tail) | 0) >= bytes) return;
      wake(this.#numbers, WRITER_WAITS);
      waitUntilWoken(this.#numbers, READER_WAITS, TAIL, tail);
    }
  }
}

/** Tells the writer of a line that nothing more comes. */
export function endLine(memory: SharedArrayBuffer): void {
  const numbers = numbersOf(memory);
  Atomics.store(numbers, ENDED, 1);
  wake(numbers, WRITER_WAITS);
}

/** Tells the reader of a line that its writer has failed. */
export function failLine(memory: SharedArrayBuffer): void {
  const numbers = numbersOf(memory);
  Atomics.store(numbers, FAILED, 1);
  wake(numbers, READER_WAITS);
}

/**
 * Takes files from a line until it ends. `write` returns false for a file that has become another one than was told.
 * Its content is valid until it returns.
 */
export function takeFiles(memory: SharedArrayBuffer, write: (file: LineFile, content: Buffer) => boolean): void {
  const numbers = numbersOf(memory);
  const ring = ringOf(memory);
  Atomics.store(numbers, WRITER, 1);
  for (let tail = 0; ;) {
    const head = Atomics.load(numbers, HEAD);
    if (head === tail) {
      if (Atomics.load(numbers, ENDED) === 1) return;
      waitUntilWoken(numbers, WRITER_WAITS, HEAD, head);
      continue;
    }
    const at = tail & (RING_BYTES - 1);
    const length = ring.readUInt32LE(at);
    const pathLength = ring.readUInt32LE(at + 4);
    if (pathLength > 0 && !write(...fileAt(ring, at, pathLength))) Atomics.store(numbers, UNLIKE, 1);
    tail = (tail + length) | 0;
    Atomics.store(numbers, TAIL, tail);
    if (((Atomics.load(numbers, HEAD) - tail) | 0) <= RING_BYTES / 2) wake(numbers, READER_WAITS);
  }
}

/** Waits while a number is the one that was seen, until somebody wakes this thread or it is time to look again. */
function waitUntilWoken(numbers: Int32Array, waits: number, place: number, seen: number): void {
  Atomics.store(numbers, waits, 1);
  // A change from before that was said wakes nobody.
  const isOver = Atomics.load(numbers, ENDED) === 1 || Atomics.load(numbers, FAILED) === 1;
  if (!isOver && Atomics.load(numbers, place) === seen) Atomics.wait(numbers, waits, 1, LOOK_AGAIN_MS);
  Atomics.store(numbers, waits, 0);
}

function wake(numbers: Int32Array, waits: number): void {
  if (Atomics.load(numbers, waits) === 0) return;
  Atomics.store(numbers, waits, 0);
  Atomics.notify(numbers, waits);
}

function fileAt(ring: Buffer, at: number, pathLength: number): [file: LineFile, content: Buffer] {
  const number = (place: number): number => ring.readUInt32LE(at + place);
  const start = at + HEAD_BYTES;
  const file = {
    path: ring.toString('latin1', start, start + pathLength),
    uid: number(12),
    gid: number(16),
    mode: number(20),
    time: [ring.readDoubleLE(at + 28), number(24)] as const,
  };
  return [file, ring.subarray(start + pathLength, start + pathLength + number(8))];
}

function numbersOf(memory: SharedArrayBuffer): Int32Array {
  return new Int32Array(memory, 0, NUMBERS_BYTES / 4);
}

function ringOf(memory: SharedArrayBuffer): Buffer {
  return Buffer.from(memory, NUMBERS_BYTES, RING_BYTES);
}
