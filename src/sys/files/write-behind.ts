/**
 * Writes pieces of files in another thread, one after the other, while this thread goes on. That thread is the C
 * library's (aio_write): it begins with the next piece at once, where one of libuv's would be woken for each piece by
 * this thread's loop, which takes a third as long as the write.
 */
import { writeSync } from 'node:fs';
import { libc } from '../ffi/libc.js';
import { keepAlive } from '../ffi/unkilled.js';

// asm-generic/errno.h
const EINPROGRESS = 115;
// bits/sigevent-consts.h
const SIGEV_NONE = 1;
// struct aiocb of bits/types/struct_aiocb.h, on machines of 64 bits that have the low ones first: its size, and where
// its parts are, in words of 32 bits
const CONTROL_WORDS = 42;
const FILDES_AT = 0;
const BUF_AT = 4;
const NBYTES_AT = 6;
const SIGEV_NOTIFY_AT = 11;
const OFFSET_AT = 32;
const WORD = 2 ** 32;

interface Functions {
  readonly write: (control: Uint32Array) => number;
  readonly error: (control: Uint32Array) => number;
  readonly result: (control: Uint32Array) => number;
  readonly suspend: (list: BigUint64Array, count: number, timeout: null) => number;
}

interface Request {
  readonly control: Uint32Array;
  readonly fd: number;
  readonly bytes: Buffer;
  readonly position: number;
}

let functions: Functions | undefined;
let isMissing = false;

/** Returns undefined where the C library is another one than that whose structure is known, or has them elsewhere. */
function load(): Functions | undefined {
  if (functions !== undefined || isMissing) return functions;
  try {
    libc.func('const char *gnu_get_libc_version()');
    functions = {
      write: libc.func('int aio_write64(void *control)'),
      error: libc.func('int aio_error64(const void *control)'),
      result: libc.func('int64_t aio_return64(void *control)'),
      suspend: libc.func('int aio_suspend64(const void *list, int count, const void *timeout)'),
    };
  } catch {
    isMissing = true;
  }
  return functions;
}

export class WriteBehind {
  /** In the order in which they are written. */
  readonly #requests: Request[] = [];
  readonly #functions = load();
  #failure: { readonly error: unknown } | undefined;
  /** A killed thread would take away the memory that is read from. */
  #release: (() => void) | undefined;

  /**
   * Writes all bytes, mostly not yet when it returns. Nobody may change them until their memory is free, or close the
   * file before `settle` or `abandon` has returned. @throws the errno error of this write, or of one before.
   */
  write(fd: number, bytes: Buffer, position: number): void {
    this.#check();
    if (this.#functions) {
      const control = controlOf(fd, bytes, position);
      this.#release ??= keepAlive();
      // It is refused where there can be no other thread.
      if (this.#functions.write(control) === 0) return void this.#requests.push({ control, fd, bytes, position });
      this.#releaseIfIdle();
    }
    writeRest({ fd, bytes, position }, 0);
  }

  /** Tells whether bytes in this memory are still to be written. */
  uses(memory: ArrayBufferLike): boolean {
    return this.#requests.some(({ bytes }) => bytes.buffer === memory);
  }

  /** Waits until no bytes in this memory are written any more, as `pause`. */
  waitFor(memory: ArrayBufferLike): void {
    while (this.uses(memory)) this.#finishFirst();
  }

  /** Waits until nothing is written any more. How it was written is told by the next `write` or `settle`. */
  pause(): void {
    while (this.#requests.length > 0) this.#finishFirst();
  }

  /** Waits until all is written. @throws the errno error of a write. */
  settle(): void {
    this.pause();
    this.#check();
  }

  /** Waits until nothing is written any more, whatever became of it. */
  abandon(): void {
    this.pause();
    this.#failure = undefined;
  }

  #finishFirst(): void {
    const request = this.#requests.shift();
    if (!request || !this.#functions) return;
    const count = waitForCount(this.#functions, request.control);
    this.#releaseIfIdle();
    try {
      // The rest of one that has failed fails here again, or is written.
      if (!this.#failure) writeRest(request, Math.max(count, 0));
    } catch (error) {
      this.#failure = { error };
    }
  }

  #check(): void {
    if (this.#failure) throw this.#failure.error;
  }

  #releaseIfIdle(): void {
    if (this.#requests.length > 0) return;
    this.#release?.();
    this.#release = undefined;
  }
}

/** Blocks this thread, as a write to a slow disk does. Returns how many bytes were written, or -1. */
function waitForCount({ error, suspend, result }: Functions, control: Uint32Array): number {
  if (error(control) === EINPROGRESS) {
    const list = BigUint64Array.of(libc.addressOf(new Uint8Array(control.buffer)));
    do suspend(list, 1, null);
    while (error(control) === EINPROGRESS);
  }
  return result(control);
}

function controlOf(fd: number, bytes: Buffer, position: number): Uint32Array {
  const control = new Uint32Array(CONTROL_WORDS);
  const set = (at: number, value: number): void => {
    control[at] = value % WORD;
    control[at + 1] = value / WORD;
  };
  control[FILDES_AT] = fd;
  control[SIGEV_NOTIFY_AT] = SIGEV_NONE;
  set(BUF_AT, Number(libc.addressOf(bytes)));
  set(NBYTES_AT, bytes.length);
  set(OFFSET_AT, position);
  return control;
}

function writeRest({ fd, bytes, position }: Omit<Request, 'control'>, from: number): void {
  for (let at = from; at < bytes.length;) at += writeSync(fd, bytes, at, bytes.length - at, position + at);
}
