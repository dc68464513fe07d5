/** Choices that a seed determines. */
import { randomNumbers } from '../support/random-numbers.js';

export class Random {
  readonly #next: (limit: number) => number;

  constructor(seed: number) {
    this.#next = randomNumbers(seed);
  }

  /** An integer from 0 to below `end`. */
  below(end: number): number {
    return this.#next(end);
  }

  chance(share: number): boolean {
    return this.#next(1_000_000) < share * 1_000_000;
  }

  of<T>(items: readonly T[]): T {
    const item = items[this.below(items.length)];
    if (item === undefined) throw new Error('nothing to choose from');
    return item;
  }

  bytes(length: number): Buffer {
    return Buffer.from(Array.from({ length }, () => this.below(256)));
  }
}
