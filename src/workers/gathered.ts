/**
 * Gathers chunks to pieces, in two buffers that are used by turns: one is filled while the other is worked on in other
 * threads. Large pieces make few trips between these and the one that gathers.
 */
import { freeBuffer } from '../sys/process/free-buffer.js';

const PIECE_BYTES = 256 << 10;

export class Gathered {
  readonly #take: (piece: Buffer) => void | Promise<void>;
  #filling = Buffer.allocUnsafeSlow(PIECE_BYTES);
  #other: Buffer<ArrayBuffer> | undefined;
  #count = 0;
  /** Settled when the piece that was passed on last may be overwritten. Never rejects. */
  #running: Promise<void> | undefined;
  #failure: { readonly reason: unknown } | undefined;

  /** @param take gets whole pieces and the rest, one at a time; they are lent until its promise resolves. */
  constructor(take: (piece: Buffer) => void | Promise<void>) {
    this.#take = take;
  }

  /** Returns a promise only when both buffers are full; then the chunk may be reused. Throws what `take` has thrown. */
  write(chunk: Buffer): void | Promise<void> {
    this.#check();
    for (let at = this.#gather(chunk); this.#count === PIECE_BYTES; at += this.#gather(chunk.subarray(at))) {
      const rest = chunk.subarray(at);
      if (this.#running) return this.#running.then(() => this.write(rest));
      this.#pass();
    }
  }

  /** Resolves when everything is taken; nothing may be written any more. */
  async end(): Promise<void> {
    await this.#running;
    this.#check();
    if (this.#count > 0) this.#pass();
    await this.#running;
    this.#check();
    freeBuffer(this.#filling);
    if (this.#other) freeBuffer(this.#other);
  }

  #check(): void {
    if (this.#failure) throw this.#failure.reason;
  }

  /** Copies what there is room for, and returns how many bytes that are. */
  #gather(chunk: Buffer): number {
    const count = chunk.copy(this.#filling, this.#count);
    this.#count += count;
    return count;
  }

  #pass(): void {
    const piece = this.#filling.subarray(0, this.#count);
    this.#count = 0;
    [this.#filling, this.#other] = [this.#other ?? Buffer.allocUnsafeSlow(PIECE_BYTES), this.#filling];
    this.#running = this.#run(piece)
      .catch((reason: unknown) => void (this.#failure = { reason }))
      .finally(() => (this.#running = undefined));
  }

  async #run(piece: Buffer): Promise<void> {
    await this.#take(piece);
  }
}
