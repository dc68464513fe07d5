/** A reading that can be ended while a piece of it is awaited, which a generator alone does not allow. */
export class Stoppable implements AsyncIterableIterator<Buffer> {
  readonly #abort = new AbortController();
  readonly #run: AsyncGenerator<Buffer, undefined>;

  /** @param read ends, or throws, soon after its signal aborts; what it throws then is of no interest. */
  constructor(read: (signal: AbortSignal) => AsyncGenerator<Buffer, undefined>) {
    this.#run = read(this.#abort.signal);
  }

  [Symbol.asyncIterator](): this {
    return this;
  }

  async next(): Promise<IteratorResult<Buffer, undefined>> {
    try {
      return await this.#run.next();
    } catch (error) {
      if (this.#abort.signal.aborted) return { done: true, value: undefined };
      throw error;
    }
  }

  /** Frees everything and settles a pending `next`. */
  async return(): Promise<IteratorResult<Buffer, undefined>> {
    this.#abort.abort();
    return this.#run.return(undefined);
  }
}
