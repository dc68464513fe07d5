/** Decompresses layer blobs by their first bytes, because media types are often wrong. */
import { once } from 'node:events';
import { type Duplex, pipeline, Readable, type TransformOptions } from 'node:stream';
import { createGunzip, type ZlibOptions } from 'node:zlib';
import { Decompress as ZstdDecompress } from 'fzstd';
import { dataLoss, isEngineError, messageOf } from '../errors/engine-error.js';
import type { MakeInflater } from '../sys/ffi/inflater.js';
import { inflaters } from '../sys/ffi/inflaters.js';
import type { Sha256 } from '../sys/ffi/sha256.js';
import { bufferDied } from './buffer-collector.js';
import { filterProcess } from './filter-process.js';
import { Gathered } from './gathered.js';
import { Gunzip } from './gunzip.js';
import { gunzipped } from './gunzipped.js';

/** Takes compressed bytes in order and hands plain ones to the consumer given to `createDecompressor`. */
export interface Decompressor {
  /**
   * Returns a promise only when it has to wait until more bytes are welcome; then the chunk may be reused. Throws, or
   * rejects with, `data-loss` for a damaged stream or the consumer's error.
   */
  write(chunk: Buffer): void | Promise<void>;
  /** Resolves when the consumer has had everything. */
  end(): Promise<void>;
  /** Frees everything; nothing more reaches the consumer. Idempotent. */
  destroy(): void;
}

/** Gets pieces in memory that is used again when it returns. */
type Consumer = (chunk: Buffer) => void;

export interface DecompressorOptions {
  /** If true, the plain bytes are checked by a digest, so that the sum in a gzip stream is not made. */
  readonly hasDigest?: boolean;
  /** Gets the plain bytes before the consumer has them, or at the same time in another thread. */
  readonly hash?: Sha256 | undefined;
  /** If true, chunks are large, and each is written when the promise of the one before has resolved. */
  readonly isGathered?: boolean;
  /** How gzip is inflated; else as it is fastest on this machine. */
  readonly gzip?: MakeInflater | 'stream' | undefined;
}

/** Size of output buffers: large ones make few trips between the threads that inflate and the one that extracts. */
const OUTPUT_BYTES = 256 << 10;
/** Smaller pieces of input are gathered in buffers of this size, for the same reason. */
const INPUT_BYTES = 256 << 10;
/**
 * As with every stream, `highWaterMark` counts on the side of the input too: what may wait there while a piece is
 * inflated.
 */
const GUNZIP: ZlibOptions & TransformOptions = { chunkSize: OUTPUT_BYTES, highWaterMark: 512 << 10 };
/** The longest magic number. */
const MAGIC_BYTES = 6;
const ZSTD_PORTION_BYTES = 64 << 10;

const startsWith = (bytes: Uint8Array, ...magic: number[]): boolean =>
  magic.every((byte, index) => bytes[index] === byte);

const damaged = (error: unknown): Error =>
  isEngineError(error)
    ? error
    : dataLoss(`error while decompressing a layer: ${messageOf(error)}`, { code: 'BAD_COMPRESSION', cause: error });

function isGzip(head: Uint8Array): boolean {
  return startsWith(head, 0x1f, 0x8b);
}

/** Returns a stream that decompresses data with this beginning; undefined for plain data and zstd. */
function streamFor(head: Uint8Array): Duplex | undefined {
  if (isGzip(head)) return createGunzip(GUNZIP);
  if (startsWith(head, 0x42, 0x5a, 0x68)) return filterProcess('bzip2', ['-dc']);
  if (startsWith(head, 0xfd, 0x37, 0x7a, 0x58, 0x5a, 0x00)) return filterProcess('xz', ['-dcq']);
  return undefined;
}

function isZstd(head: Uint8Array): boolean {
  return (
    startsWith(head, 0x28, 0xb5, 0x2f, 0xfd) ||
    (startsWith(head.subarray(1), 0x2a, 0x4d, 0x18) && (head[0] ?? 0) >> 4 === 5)
  );
}

/** Makes what inflates data with this beginning; undefined if that is no gzip, or a stream's task. */
function inflaterFor(head: Uint8Array, { hasDigest = false, gzip = inflaters()[0] }: DecompressorOptions) {
  return isGzip(head) && gzip !== undefined && gzip !== 'stream' ? gzip(hasDigest) : undefined;
}

function decompressorFor(head: Uint8Array, consumer: Consumer, options: DecompressorOptions): Decompressor {
  const inflater = inflaterFor(head, options);
  const { hash } = options;
  if (inflater) {
    const gunzip = new Gunzip(consumer, inflater, damaged, hash);
    return options.isGathered === true ? gunzip : gathered(gunzip);
  }
  const hashed: Consumer = (chunk) => {
    hash?.add(chunk);
    consumer(chunk);
  };
  const stream = streamFor(head);
  if (stream) return through(stream, hashed);
  return isZstd(head) ? zstd(hashed) : plain(consumer, hash);
}

/** True for the first bytes of something compressed that `createDecompressor` knows. */
export function isCompressed(head: Uint8Array): boolean {
  return (
    startsWith(head, 0x1f, 0x8b) ||
    startsWith(head, 0x42, 0x5a, 0x68) ||
    startsWith(head, 0xfd, 0x37, 0x7a, 0x58, 0x5a, 0x00) ||
    isZstd(head)
  );
}

/**
 * Returns the plain bytes of a source that may be compressed, as fast as they are taken. Each chunk of either is lent
 * until the next one is asked for. Throws `data-loss` for a damaged source.
 */
export async function* decompressed(
  source: AsyncIterable<Buffer>,
  options: DecompressorOptions = {},
): AsyncGenerator<Buffer> {
  const iterator = source[Symbol.asyncIterator]();
  let head = Buffer.alloc(0);
  while (head.length < MAGIC_BYTES) {
    const next = await iterator.next();
    if (next.done === true) break;
    head = Buffer.concat([head, next.value]);
  }
  const whole = prefixed(head, iterator);
  const inflater = inflaterFor(head, options);
  const stream = inflater ? undefined : streamFor(head);
  const inflated = inflater ? gunzipped(whole, inflater) : stream && streamed(whole, stream);
  if (inflated) {
    try {
      yield* inflated;
    } catch (error) {
      throw damaged(error);
    }
    return;
  }
  if (!isZstd(head)) {
    yield* whole;
    return;
  }
  let pieces: Buffer[] = [];
  const decompressor = zstd((piece) => pieces.push(piece));
  for await (const chunk of whole) {
    // In small portions, for each may become a hundred times its size.
    for (let at = 0; at < chunk.length; at += ZSTD_PORTION_BYTES) {
      await decompressor.write(chunk.subarray(at, at + ZSTD_PORTION_BYTES));
      yield* pieces;
      pieces = [];
    }
  }
  await decompressor.end();
  yield* pieces;
}

function streamed(source: AsyncIterable<Buffer>, stream: Duplex): AsyncIterable<Buffer> {
  // A failure at either end destroys both, and is thrown by the iteration.
  pipeline(Readable.from(copies(source)), stream, () => undefined);
  return stream;
}

/** A stream asks for more while it has what it got. */
async function* copies(source: AsyncIterable<Buffer>): AsyncGenerator<Buffer> {
  for await (const chunk of source) yield Buffer.from(chunk);
}

async function* prefixed(head: Buffer, rest: AsyncIterator<Buffer>): AsyncGenerator<Buffer> {
  if (head.length > 0) yield head;
  for (let next = await rest.next(); next.done !== true; next = await rest.next()) yield next.value;
}

/** Makes a decompressor for gzip, zstd, bzip2, xz or plain bytes; the first bytes decide. */
export function createDecompressor(consumer: Consumer, options: DecompressorOptions = {}): Decompressor {
  let head = Buffer.alloc(0);
  let inner: Decompressor | undefined;
  const decide = async (): Promise<Decompressor> => {
    inner = decompressorFor(head, consumer, options);
    await inner.write(head);
    return inner;
  };
  return {
    write(chunk) {
      if (inner) return inner.write(chunk);
      head = Buffer.concat([head, chunk]);
      return head.length >= MAGIC_BYTES ? decide().then(() => undefined) : undefined;
    },
    async end() {
      await (inner ?? (await decide())).end();
    },
    destroy: () => inner?.destroy(),
  };
}

function gathered(inner: Decompressor): Decompressor {
  const pieces = new Gathered((piece) => inner.write(piece));
  return {
    write: (chunk) => pieces.write(chunk),
    async end() {
      await pieces.end();
      await inner.end();
    },
    destroy: () => inner.destroy(),
  };
}

function plain(consumer: Consumer, hash: Sha256 | undefined): Decompressor {
  return {
    write(chunk) {
      const hashing = hash?.addAside(chunk);
      consumer(chunk);
      return hashing;
    },
    end: async () => undefined,
    destroy: () => undefined,
  };
}

/**
 * zlib and programs work on threads of their own, so that inflating one piece overlaps extracting the piece before: it
 * is extracted when the listener has returned, for only then is the next one begun.
 */
function through(stream: Duplex, consumer: Consumer): Decompressor {
  let failure: Error | undefined;
  let isDestroyed = false;
  const extract = (chunk: Buffer): void => {
    // Not the stream's own word for it: one that has ended is destroyed too, maybe before its last piece is extracted.
    if (failure || isDestroyed) return;
    try {
      consumer(chunk);
    } catch (error) {
      failure = damaged(error);
      stream.destroy(failure);
    }
    bufferDied(chunk.length);
  };
  stream.on('data', (chunk: Buffer) => queueMicrotask(() => extract(chunk)));
  stream.on('error', (error: unknown) => (failure ??= damaged(error)));
  let isEnded = false;
  stream.once('end', () => (isEnded = true));
  const input = new StreamInput(stream);
  const check = (): void => {
    if (failure) throw failure;
  };
  const write = (chunk: Buffer): void | Promise<void> => {
    check();
    let at = input.put(chunk, 0);
    for (; input.isFull; at += input.put(chunk, at)) {
      const free = input.whenFree();
      if (free) return free.then(() => write(chunk.subarray(at)));
      input.pass();
    }
  };
  return {
    write,
    async end() {
      check();
      await input.whenFree();
      input.pass();
      stream.end();
      // Padding behind the last byte may have ended it.
      if (!isEnded) await once(stream, 'end').catch((error: unknown) => (failure ??= damaged(error)));
      check();
    },
    destroy() {
      isDestroyed = true;
      stream.destroy();
    },
  };
}

/**
 * Gathers input for a stream in two buffers that are used by turns: one is filled while the stream has the other. A new
 * buffer for each piece would be old garbage by the time that the stream is done with it.
 */
class StreamInput {
  readonly #stream: Duplex;
  #filling = Buffer.allocUnsafeSlow(INPUT_BYTES);
  #other: Buffer<ArrayBuffer> | undefined;
  #usedBytes = 0;
  /** True while the stream has the other buffer. */
  #isBusy = false;
  #wake = (): void => undefined;

  constructor(stream: Duplex) {
    this.#stream = stream;
    // A stream that is closed never gives back the buffer that it has.
    stream.on('close', () => this.#release());
  }

  get isFull(): boolean {
    return this.#usedBytes === INPUT_BYTES;
  }

  /** Copies what there is room for, and returns how many bytes that are. */
  put(chunk: Buffer, from: number): number {
    const count = chunk.copy(this.#filling, this.#usedBytes, from);
    this.#usedBytes += count;
    return count;
  }

  /** Returns a promise only while the stream has what it was given: it resolves when the next may be passed. */
  whenFree(): Promise<void> | undefined {
    return this.#isBusy ? new Promise<void>((resolve) => (this.#wake = resolve)) : undefined;
  }

  /** Gives the stream what was gathered. One that is closed wants nothing. */
  pass(): void {
    const gathered = this.#filling.subarray(0, this.#usedBytes);
    this.#usedBytes = 0;
    if (gathered.length === 0 || this.#stream.destroyed) return;
    this.#isBusy = true;
    [this.#filling, this.#other] = [this.#other ?? Buffer.allocUnsafeSlow(INPUT_BYTES), this.#filling];
    this.#stream.write(gathered, () => this.#release());
  }

  #release(): void {
    this.#isBusy = false;
    this.#wake();
  }
}

function zstd(consumer: Consumer): Decompressor {
  let isDestroyed = false;
  const stream = new ZstdDecompress((chunk) => {
    if (isDestroyed || chunk.length === 0) return;
    consumer(Buffer.from(chunk.buffer, chunk.byteOffset, chunk.length));
    bufferDied(chunk.length);
  });
  const push = async (chunk: Uint8Array, isLast: boolean): Promise<void> => {
    try {
      stream.push(chunk, isLast);
    } catch (error) {
      throw damaged(error);
    }
  };
  return {
    // The decoder keeps what it cannot use yet.
    write: (chunk) => push(Uint8Array.from(chunk), false),
    end: () => push(new Uint8Array(0), true),
    destroy: () => (isDestroyed = true),
  };
}
