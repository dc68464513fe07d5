/** Inflates gzip with ISA-L. The header of a member is read here, and so is a trailer that is not to be checked. */
import { internal } from '../../errors/engine-error.js';
import { GzipHeader } from './gzip-header.js';
import type { InflateStep, Inflater } from './inflater.js';
import { isal } from './isal.js';
import { libc } from './libc.js';

// igzip_lib.h: struct inflate_state of libisal.so.2, on machines of 64 bits
const NEXT_OUT_AT = 0;
const AVAIL_OUT_AT = 8;
const NEXT_IN_AT = 16;
const AVAIL_IN_AT = 32;
const READ_IN_LENGTH_AT = 36;
const BLOCK_STATE_AT = 21_160;
const CRC_FLAG_AT = 21_172;
/** More than the 87368 that it has. */
const STATE_BYTES = 96 << 10;
const ISAL_BLOCK_FINISH = 5;
const ISAL_DEFLATE = 0;
/** The sum behind the stream is read and checked. */
const ISAL_GZIP_NO_HDR_VER = 6;
/** Sum and length behind a deflate stream. */
const TRAILER_BYTES = 8;

interface Functions {
  readonly init: (state: Buffer) => void;
  readonly inflate: (state: Buffer) => Promise<number>;
  readonly sum: (before: number, bytes: Buffer, count: number) => number;
}

let functions: Functions | undefined;
let isMissing = false;
/** The state of an inflater that was freed, for the next one of this thread: a new one has 24 pages to fault in. */
let spare: Buffer | undefined;

/** False where the library is missing, or has its fields elsewhere. */
export function canIsal(): boolean {
  if (functions === undefined && !isMissing) {
    functions = load();
    isMissing = functions === undefined;
  }
  return !isMissing;
}

function load(): Functions | undefined {
  const library = isal();
  if (library === undefined) return undefined;
  try {
    const inflateNow = library.func<[state: Buffer]>('int isal_inflate(void *state)');
    const loaded: Functions = {
      init: library.func<[state: Buffer], void>('void isal_inflate_init(void *state)'),
      inflate: library.pooled('int isal_inflate(void *state)'),
      sum: library.func('uint32_t crc32_gzip_refl(uint32_t before, const void *bytes, uint64_t count)'),
    };
    return isAsDeclared(loaded, inflateNow) ? loaded : undefined;
  } catch {
    return undefined;
  }
}

/** Inflates one byte, and looks where the library says what it did. */
function isAsDeclared({ init }: Functions, inflate: (state: Buffer) => number): boolean {
  const state = Buffer.alloc(2 * STATE_BYTES);
  const input = Buffer.from('4b0400', 'hex');
  const output = Buffer.alloc(4);
  init(state);
  point(state, input, output);
  return (
    inflate(state) === 0 &&
    output.toString('latin1') === 'a\0\0\0' &&
    state.readUInt32LE(AVAIL_IN_AT) === 0 &&
    state.readUInt32LE(AVAIL_OUT_AT) === 3 &&
    state.readUInt32LE(BLOCK_STATE_AT) === ISAL_BLOCK_FINISH
  );
}

function point(state: Buffer, input: Buffer, output: Buffer): void {
  state.writeBigUInt64LE(libc.addressOf(input), NEXT_IN_AT);
  state.writeUInt32LE(input.length, AVAIL_IN_AT);
  state.writeBigUInt64LE(libc.addressOf(output), NEXT_OUT_AT);
  state.writeUInt32LE(output.length, AVAIL_OUT_AT);
}

export class IsalInflater implements Inflater {
  readonly #functions: Functions;
  readonly #hasDigest: boolean;
  readonly #state = spare ?? Buffer.allocUnsafeSlow(STATE_BYTES);
  #header: GzipHeader;
  /** Bytes of the trailer that are to be passed over; undefined before the deflate stream has ended. */
  #trailer: number | undefined;
  #isFreed = false;

  constructor(hasDigest: boolean) {
    if (!functions) throw internal('ISA-L is missing');
    this.#functions = functions;
    this.#hasDigest = hasDigest;
    spare = undefined;
    this.#header = this.#begin();
  }

  async step(input: Buffer, output: Buffer): Promise<InflateStep> {
    if (this.#trailer !== undefined) return this.#passTrailer(input, 0);
    const headerBytes = this.#header.isDone ? 0 : this.#header.take(input);
    if (!this.#header.isDone) return { readBytes: headerBytes, writtenBytes: 0, isEnd: false };
    const state = this.#state;
    const body = input.subarray(headerBytes);
    point(state, body, output);
    const result = await this.#functions.inflate(state);
    // The counts in the state are wrong then.
    if (result !== 0) throw new Error(`gzip: invalid data (${result} of ISA-L)`);
    const readBytes = input.length - state.readUInt32LE(AVAIL_IN_AT);
    const writtenBytes = output.length - state.readUInt32LE(AVAIL_OUT_AT);
    const isFinished = state.readUInt32LE(BLOCK_STATE_AT) === ISAL_BLOCK_FINISH;
    if (isFinished && this.#hasDigest) return this.#endStream(input, readBytes, writtenBytes);
    // A step that does nothing would be made forever.
    if (readBytes < input.length && writtenBytes === 0 && !isFinished) throw internal('ISA-L stands still');
    return { readBytes, writtenBytes, isEnd: isFinished };
  }

  reset(): void {
    this.#header = this.#begin();
  }

  free(): void {
    if (this.#isFreed) return;
    this.#isFreed = true;
    spare = this.#state;
  }

  #begin(): GzipHeader {
    const state = this.#state;
    // The library never reads what another stream left there; that it is not there is certain.
    state.fill(0);
    this.#functions.init(state);
    state.writeUInt32LE(this.#hasDigest ? ISAL_DEFLATE : ISAL_GZIP_NO_HDR_VER, CRC_FLAG_AT);
    this.#trailer = undefined;
    return new GzipHeader(this.#hasDigest ? undefined : (...of) => this.#functions.sum(...of, of[1].length));
  }

  /**
   * Passes over the trailer. The library may have some of it as whole bytes that it took too many, of this input or of
   * the one before; later releases count these as not read, even if there are more than this input had.
   */
  #endStream(input: Buffer, readBytes: number, writtenBytes: number): InflateStep {
    const unusedBytes = this.#state.readInt32LE(READ_IN_LENGTH_AT) >> 3;
    this.#trailer = TRAILER_BYTES;
    const { readBytes: end, isEnd } = this.#passTrailer(input, readBytes - unusedBytes);
    return { readBytes: end, writtenBytes, isEnd };
  }

  #passTrailer(input: Buffer, from: number): InflateStep {
    const end = from + (this.#trailer ?? 0);
    this.#trailer = Math.max(0, end - input.length);
    return { readBytes: Math.min(end, input.length), writtenBytes: 0, isEnd: this.#trailer === 0 };
  }
}
