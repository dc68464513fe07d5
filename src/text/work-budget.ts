/**
 * Limits the work that the strings of one request may cause. Matching takes time in proportion to the text, but a
 * client chooses the size of its patterns, their number, and the texts: so the product of these has a limit.
 */
import { invalid } from '../errors/engine-error.js';

/** Steps of a matcher take about 25 ns each: this is a tenth of a second. */
const MAX_STEPS = 4_000_000;

export class WorkBudget {
  #left = MAX_STEPS;

  /** @param what names the field of the request in the error. Throws invalid when the work is used up. */
  constructor(private readonly what: string) {}

  spend(steps: number): void {
    this.#left -= steps;
    if (this.#left < 0)
      throw invalid(`${this.what}: patterns take too long to match`, { code: 'PATTERN_TOO_EXPENSIVE' });
  }
}
