/**
 * Writes pieces of files in another thread, which is lent for as long as that is worth it (storage/archives.ts), while
 * the borrower receives what comes next. Both sleep in Atomics.wait, as a message to a thread costs more than a piece.
 *
 * The pieces are in shared memory, in slots that are filled one after the other. Each job is a part of one.
 */
import { writeSync } from 'node:fs';
import { setImmediate as nextTurn } from 'node:timers/promises';
import { getSystemErrorName } from 'node:util';
import type { Owner } from '../ports/id-maps.js';
import { closeFd, duplicateFd } from '../sys/files/fd.js';

/** A write of half a megabyte that begins at a multiple of it takes two thirds of the time of one that does not. */
export const SLOT_BYTES = 512 * 1024;
/** One is filled, one is written, and two even out what both of them wait for. */
const SLOTS = 4;
/** Smaller parts are written at once: to hand one over takes about as long. */
const LEAST_BYTES = 64 * 1024;
/** As many as all slots have parts that are not smaller. */
const JOBS = (SLOTS * SLOT_BYTES) / LEAST_BYTES;
/** A thread that waits for a job of a disk that is slow turns to its other tasks so often. */
const TURN_MS = 5;

/** The words of `control`: whether the writer is there, how many jobs it got and has done, and the errno of one. */
const [STATE, GIVEN, DONE, ERRNO] = [0, 1, 2, 3] as const;
const [OFFERED, PRESENT, GONE] = [0, 1, 2] as const;
const CONTROL_BYTES = 4 * Int32Array.BYTES_PER_ELEMENT;
/** A job: descriptor, first byte in the memory, number of bytes, position in the file. */
const JOB_WORDS = 4;
/** Takes the place of the numbers of jobs at the end. */
const [NO_MORE, ALL] = [-1, 2 ** 31 - 1] as const;
const EIO = 5;

/** The message of a thread that wants a loan. */
export const WRITER_WANTED = 'writer';

export interface WriterLoan {
  readonly control: SharedArrayBuffer;
  readonly memory: SharedArrayBuffer;
  /** Some file systems ask who writes. */
  readonly owner: Owner;
}

export function makeLoan(owner: Owner, memory = new SharedArrayBuffer(SLOTS * SLOT_BYTES)): WriterLoan {
  const jobs = JOBS * JOB_WORDS * Float64Array.BYTES_PER_ELEMENT;
  return { control: new SharedArrayBuffer(CONTROL_BYTES + jobs), memory, owner };
}

/** Ends the writer when it has done what it was given. Idempotent. */
export function endLoan({ control }: WriterLoan): void {
  setWord(control, GIVEN, NO_MORE);
}

/** Tells the borrower that the writer's thread is no more: what it had not done yet has failed. */
export function failLoan({ control }: WriterLoan): void {
  const words = wordsOf(control);
  if (Atomics.exchange(words, STATE, GONE) === OFFERED) return;
  Atomics.compareExchange(words, ERRNO, 0, EIO);
  setWord(control, DONE, ALL);
}

/** Writes what the borrower gives, until the end of the loan. */
export function serveLoan({ control, memory }: WriterLoan): void {
  const words = wordsOf(control);
  const jobs = jobsOf(control);
  const bytes = new Uint8Array(memory);
  if (Atomics.compareExchange(words, STATE, OFFERED, PRESENT) !== OFFERED) return;
  for (let done = 0; ;) {
    const given = Atomics.load(words, GIVEN);
    if (given === NO_MORE) return;
    if (given === done) {
      Atomics.wait(words, GIVEN, given);
      continue;
    }
    const at = (done % JOBS) * JOB_WORDS;
    const [fd = -1, from = 0, length = 0, position = 0] = jobs.subarray(at, at + JOB_WORDS);
    // After a failure nothing is written any more.
    if (Atomics.load(words, ERRNO) === 0) Atomics.store(words, ERRNO, tryWrite(fd, bytes, from, length, position));
    setWord(control, DONE, (done += 1));
  }
}

/** The borrower's side. */
export class LentWriter {
  readonly #loan: WriterLoan;
  readonly #words: Int32Array;
  readonly #jobs: Float64Array;
  #given = 0;
  #slot = 0;
  /** Each slot may be filled again when so many jobs are done. */
  readonly #endOfSlot = new Int32Array(SLOTS);
  /** The file of the last job, and the writer's descriptor of it, which nobody closes when this thread is killed. */
  #file: { readonly fd: number; readonly own: number } | undefined;
  #givenBytes = 0;

  constructor(loan: WriterLoan) {
    this.#loan = loan;
    this.#words = wordsOf(loan.control);
    this.#jobs = jobsOf(loan.control);
  }

  get isPresent(): boolean {
    return Atomics.load(this.#words, STATE) === PRESENT;
  }

  /** True when all is written, without a failure. */
  get isIdle(): boolean {
    return Atomics.load(this.#words, DONE) === this.#given && Atomics.load(this.#words, ERRNO) === 0;
  }

  get givenBytes(): number {
    return this.#givenBytes;
  }

  /** Returns the next slot, when it may be filled; the slot before is not filled any more. */
  nextSlot(): Buffer | Promise<Buffer> {
    this.#slot = (this.#slot + 1) % SLOTS;
    const slot = Buffer.from(this.#loan.memory, this.#slot * SLOT_BYTES, SLOT_BYTES);
    const end = this.#endOfSlot[this.#slot] ?? 0;
    return Atomics.load(this.#words, DONE) >= end ? slot : this.#whenDone(end).then(() => slot);
  }

  /** True for a part of the slot that was returned last. */
  takes(chunk: Uint8Array, length: number): boolean {
    return chunk.buffer === this.#loan.memory && length >= LEAST_BYTES;
  }

  /** Has a part of the slot written that was returned last. @throws the error of an earlier write. */
  give(fd: number, chunk: Uint8Array, from: number, length: number, position: number): void {
    if (this.#file?.fd !== fd) {
      this.settle();
      this.#file = { fd, own: duplicateFd(fd) };
    }
    this.#wait(this.#given - JOBS + 1);
    this.#check();
    this.#jobs.set([this.#file.own, chunk.byteOffset + from, length, position], (this.#given % JOBS) * JOB_WORDS);
    this.#given += 1;
    this.#givenBytes += length;
    this.#endOfSlot[this.#slot] = this.#given;
    setWord(this.#loan.control, GIVEN, this.#given);
  }

  /** Waits until all is written that was given. @throws the error of a write. */
  settle(): void {
    this.#wait(this.#given);
    if (this.#file) closeFd(this.#file.own);
    this.#file = undefined;
    this.#check();
  }

  /** Gives the writer back. */
  end(): void {
    this.#wait(this.#given);
    if (this.#file) closeFd(this.#file.own);
    this.#file = undefined;
    endLoan(this.#loan);
  }

  #wait(jobs: number): void {
    for (let done; (done = Atomics.load(this.#words, DONE)) < jobs;) Atomics.wait(this.#words, DONE, done);
  }

  async #whenDone(jobs: number): Promise<void> {
    for (let done; (done = Atomics.load(this.#words, DONE)) < jobs;)
      if (Atomics.wait(this.#words, DONE, done, TURN_MS) === 'timed-out') await nextTurn();
  }

  #check(): void {
    const errno = Atomics.load(this.#words, ERRNO);
    if (errno !== 0) throw writeError(errno);
  }
}

/** Returns the errno of a write that fails; else 0. */
function tryWrite(fd: number, bytes: Uint8Array, from: number, length: number, position: number): number {
  try {
    writeWhole(fd, bytes, from, from + length, position);
    return 0;
  } catch (error) {
    return -((error as NodeJS.ErrnoException).errno ?? -EIO);
  }
}

export function writeWhole(fd: number, bytes: Uint8Array, from: number, to: number, position: number): void {
  for (let at = from; at < to;) at += writeSync(fd, bytes, at, to - at, position + at - from);
}

/** The error that `writeSync` throws. */
function writeError(errno: number): NodeJS.ErrnoException {
  const code = getSystemErrorName(-errno);
  return Object.assign(new Error(`${code}: write`), { code, errno: -errno, syscall: 'write' });
}

function setWord(control: SharedArrayBuffer, word: number, value: number): void {
  const words = wordsOf(control);
  Atomics.store(words, word, value);
  Atomics.notify(words, word);
}

const wordsOf = (control: SharedArrayBuffer): Int32Array<SharedArrayBuffer> => new Int32Array(control, 0, 4);
const jobsOf = (control: SharedArrayBuffer): Float64Array<SharedArrayBuffer> =>
  new Float64Array(control, CONTROL_BYTES);
