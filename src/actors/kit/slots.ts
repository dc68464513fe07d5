/** A counted semaphore; a wait for it can be given up. */

export class Slots {
  #free: number;
  readonly #queue: (() => void)[] = [];

  /** @param count of slots; 0: no limit. */
  constructor(count: number) {
    this.#free = count === 0 ? Infinity : count;
  }

  /**
   * Resolves, in the order of the calls, with an idempotent function that gives the slot back; rejects with the
   * signal's reason. `onWait` is called when no slot is free now.
   */
  async take(signal?: AbortSignal, onWait: () => void = () => undefined): Promise<() => void> {
    signal?.throwIfAborted();
    if (this.#free > 0) this.#free--;
    else {
      onWait();
      await this.#turn(signal);
    }
    return this.#held();
  }

  /** Calls `work` with a slot. */
  async run<T>(signal: AbortSignal, work: () => Promise<T>): Promise<T> {
    const free = await this.take(signal);
    try {
      return await work();
    } finally {
      free();
    }
  }

  /** Takes a slot like `take`, but only if one is free now. */
  tryTake(): (() => void) | undefined {
    if (this.#free <= 0) return undefined;
    this.#free--;
    return this.#held();
  }

  #held(): () => void {
    let isHeld = true;
    return () => {
      if (!isHeld) return;
      isHeld = false;
      const next = this.#queue.shift();
      if (next) next();
      else this.#free++;
    };
  }

  #turn(signal: AbortSignal | undefined): Promise<void> {
    return new Promise((resolve, reject) => {
      const proceed = (): void => {
        signal?.removeEventListener('abort', giveUp);
        resolve();
      };
      const giveUp = (): void => {
        this.#queue.splice(this.#queue.indexOf(proceed), 1);
        reject(signal?.reason as Error);
      };
      signal?.addEventListener('abort', giveUp, { once: true });
      this.#queue.push(proceed);
    });
  }
}
