/**
 * Inflates a gzip stream piece by piece in another thread, while this one extracts the piece before. Four buffers are
 * used again and again: two are filled with input and inflated by turns, and two with output.
 */
import type { Inflater } from '../sys/ffi/inflater.js';

/** Large buffers make few trips between the thread that inflates and the one that extracts. */
const BUFFER_BYTES = 256 << 10;

export class Gunzip {
  readonly #inflater: Inflater;
  readonly #consumer: (chunk: Buffer) => void;
  readonly #failed: (error: unknown) => Error;
  #filling = Buffer.allocUnsafeSlow(BUFFER_BYTES);
  #other = Buffer.allocUnsafeSlow(BUFFER_BYTES);
  #gathered = 0;
  #output = Buffer.allocUnsafeSlow(BUFFER_BYTES);
  #otherOutput = Buffer.allocUnsafeSlow(BUFFER_BYTES);
  /** The piece that is to be extracted, in `#otherOutput`. */
  #ready: Buffer | undefined;
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
   */
  constructor(consumer: (chunk: Buffer) => void, inflater: Inflater, failed: (error: unknown) => Error) {
    this.#consumer = consumer;
    this.#inflater = inflater;
    this.#failed = failed;
  }

  write(chunk: Buffer): void | Promise<void> {
    this.#check();
    for (let at = this.#gather(chunk); this.#gathered === BUFFER_BYTES; at += this.#gather(chunk.subarray(at))) {
      const rest = chunk.subarray(at);
      if (this.#running) return this.#running.then(() => this.write(rest));
      this.#pass();
    }
  }

  async end(): Promise<void> {
    await this.#running;
    this.#check();
    this.#pass();
    await this.#running;
    this.#extract();
    this.#check();
    this.destroy();
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

  /** Copies what there is room for, and returns how many bytes that are. */
  #gather(chunk: Buffer): number {
    const count = chunk.copy(this.#filling, this.#gathered);
    this.#gathered += count;
    return count;
  }

  #pass(): void {
    const input = this.#filling.subarray(0, this.#gathered);
    this.#gathered = 0;
    [this.#filling, this.#other] = [this.#other, this.#filling];
    this.#running = this.#inflate(input)
      .catch((error: unknown) => {
        this.#failure ??= this.#failed(error);
      })
      .finally(() => (this.#running = undefined));
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
    try {
      this.#consumer(piece);
    } catch (error) {
      this.#failure = this.#failed(error);
    }
  }
}
