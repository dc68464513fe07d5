/** Inflates gzip with the zlib that is in the process, which any machine has. */
import { internal } from '../../errors/engine-error.js';
import type { InflateStep, Inflater } from './inflater.js';
import { libc } from './libc.js';

// zlib.h: struct z_stream, on machines of 64 bits
const STREAM_BYTES = 112;
const NEXT_IN_AT = 0;
const AVAIL_IN_AT = 8;
const NEXT_OUT_AT = 24;
const AVAIL_OUT_AT = 32;
const Z_NO_FLUSH = 0;
const Z_OK = 0;
const Z_STREAM_END = 1;
const Z_MEM_ERROR = -4;
const Z_BUF_ERROR = -5;
/** The largest window, and the header and trailer of gzip around it. */
const GZIP_WINDOW_BITS = 15 + 16;
/** Only its first digit is compared. */
const VERSION = '1.2.11';

interface Functions {
  readonly init: (stream: Buffer, windowBits: number, version: string, bytes: number) => number;
  readonly validate: (stream: Buffer, isWanted: number) => number;
  readonly inflate: (stream: Buffer, flush: number) => Promise<number>;
  readonly reset: (stream: Buffer) => number;
  readonly end: (stream: Buffer) => number;
}

let functions: Functions | undefined;
let isMissing = false;

function load(): Functions {
  return (functions ??= {
    init: libc.func('int inflateInit2_(void *stream, int windowBits, const char *version, int bytes)'),
    validate: libc.func('int inflateValidate(void *stream, int isWanted)'),
    inflate: libc.pooled('int inflate(void *stream, int flush)'),
    reset: libc.func('int inflateReset(void *stream)'),
    end: libc.func('int inflateEnd(void *stream)'),
  });
}

/** False where Node keeps its zlib for itself. */
export function canZlib(): boolean {
  if (functions === undefined && !isMissing) {
    try {
      load();
    } catch {
      isMissing = true;
    }
  }
  return !isMissing;
}

export class ZlibInflater implements Inflater {
  readonly #functions = load();
  /** The library keeps its address. */
  readonly #stream = Buffer.alloc(STREAM_BYTES);
  #isFreed = false;

  constructor(hasDigest: boolean) {
    const { init, validate } = this.#functions;
    const result = init(this.#stream, GZIP_WINDOW_BITS, VERSION, STREAM_BYTES);
    if (result !== Z_OK) throw internal(`zlib refuses to inflate (${result})`);
    if (hasDigest) validate(this.#stream, 0);
  }

  async step(input: Buffer, output: Buffer): Promise<InflateStep> {
    const stream = this.#stream;
    stream.writeBigUInt64LE(libc.addressOf(input), NEXT_IN_AT);
    stream.writeUInt32LE(input.length, AVAIL_IN_AT);
    stream.writeBigUInt64LE(libc.addressOf(output), NEXT_OUT_AT);
    stream.writeUInt32LE(output.length, AVAIL_OUT_AT);
    const result = await this.#functions.inflate(stream, Z_NO_FLUSH);
    if (result === Z_MEM_ERROR) throw internal('zlib has no memory', { code: 'ENOMEM' });
    // The last one means that there was nothing to do.
    if (result !== Z_OK && result !== Z_STREAM_END && result !== Z_BUF_ERROR)
      throw new Error(`gzip: invalid data (${result})`);
    return {
      readBytes: input.length - stream.readUInt32LE(AVAIL_IN_AT),
      writtenBytes: output.length - stream.readUInt32LE(AVAIL_OUT_AT),
      isEnd: result === Z_STREAM_END,
    };
  }

  reset(): void {
    this.#functions.reset(this.#stream);
  }

  free(): void {
    if (this.#isFreed) return;
    this.#isFreed = true;
    this.#functions.end(this.#stream);
  }
}
