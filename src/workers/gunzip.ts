/**
 * Inflates a gzip stream piece by piece in another thread, while this one extracts the piece before, and a third one
 * hashes it. Two buffers for the output are used by turns.
 */
import type { Inflater } from '../sys/ffi/inflater.js';
import type { Sha256 } from '../sys/ffi/sha256.js';
import { freeBuffer } from '../sys/process/free-buffer.js';

/** Large buffers make few trips between the thread that inflates and the one that extracts. */
const BUFFER_BYTES = 256 << 10;

export class Gunzip {
  readonly #inflater: Inflater;
  readonly #consumer: (chunk: Buffer) => void;
  readonly #failed: (error: unknown) => Error;
  readonly #hash: Sha256 | undefined;
  #output = Buffer.allocUnsafeSlow(BUFFER_BYTES);
  #otherOutput = Buffer.allocUnsafeSlow(BUFFER_BYTES);
  /** The piece that is to be extracted, in `#otherOutput`. */
  #ready: Buffer | undefined;
  /** Settled when the piece that was extracted last is hashed. Never rejects. */
  #hashing: Promise<void> | undefined;
  /** Settled when the input that was passed on is inflated. Never rejects. */
  #running: Promise<void> | undefined;
  #failure: Error | undefined;
  #isDestroyed = false;
  /** A member has ended: another one may follow, or padding. */
  #isAtEnd = false;
  #isPadding = false;

  /**
   * @param inflater is freed at the end.
   * @param failed makes the error for damaged data, and for what the consumer throws.
   * @param hash gets the plain bytes, while the consumer has them.
   */
  constructor(
    consumer: (chunk: Buffer) => void,
    inflater: Inflater,
    failed: (error: unknown) => Error,
    hash: Sha256 | undefined,
  ) {
    this.#consumer = consumer;
    this.#inflater = inflater;
    this.#failed = failed;
    this.#hash = hash;
  }

  /** Resolves when the chunk is inflated; not to be called before that of the chunk before. */
  async write(chunk: Buffer): Promise<void> {
    this.#check();
    this.#running = this.#inflate(chunk)
      .catch((error: unknown) => {
        this.#failure ??= this.#failed(error);
      })
      .finally(() => (this.#running = undefined));
    await this.#running;
    this.#check();
  }

  async end(): Promise<void> {
    this.#check();
    this.#extract();
    await this.#hashing;
    this.#check();
    this.destroy();
    freeBuffer(this.#output);
    freeBuffer(this.#otherOutput);
    if (!this.#isAtEnd) throw this.#failed(new Error('unexpected end of file'));
  }

  destroy(): void {
    this.#isDestroyed = true;
    if (this.#running) void this.#running.then(() => this.#inflater.free());
    else this.#inflater.free();
  }

  #check(): void {
    if (this.#failure) throw this.#failure;
  }

  async #inflate(input: Buffer): Promise<void> {
    let at = 0;
    let isFull = false;
    while ((at < input.length || isFull) && !this.#isDestroyed && !this.#isPadding && !this.#failure) {
      if (this.#isAtEnd && !this.#beginMember(input, at)) return;
      const output = this.#output;
      const step = this.#inflater.step(input.subarray(at), output);
      this.#extract();
      const { readBytes, writtenBytes, isEnd } = await step;
      // Its piece is overwritten by the next step.
      await this.#hashing;
      at += readBytes;
      isFull = writtenBytes === output.length && !isEnd;
      this.#isAtEnd = isEnd;
      this.#ready = output.subarray(0, writtenBytes);
      [this.#output, this.#otherOutput] = [this.#otherOutput, output];
    }
  }

  /** Returns false for zeros: they are padding, and so is all that follows. */
  #beginMember(input: Buffer, at: number): boolean {
    this.#isPadding = input[at] === 0;
    if (this.#isPadding) return false;
    this.#isAtEnd = false;
    this.#inflater.reset();
    return true;
  }

  /** Hands over the piece that is ready. A failure is noted, because a step may be under way. */
  #extract(): void {
    const piece = this.#ready;
    this.#ready = undefined;
    if (!piece || piece.length === 0 || this.#failure || this.#isDestroyed) return;
    this.#hashing = this.#hash?.addAside(piece);
    try {
      this.#consumer(piece);
    } catch (error) {
      this.#failure = this.#failed(error);
    }
  }
}
