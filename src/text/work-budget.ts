/**
 * A bound on the work that the strings of one request may cause. Matching is linear in the length of a text, but a
 * client chooses the size of its patterns, their number, and what they are tried on: the product is what must end.
 */
import { invalid } from '../errors/engine-error.js';

/** Steps of a matcher take about 25 ns each: this is a tenth of a second. */
const MAX_STEPS = 4_000_000;

export class WorkBudget {
  #left = MAX_STEPS;

  /** `what` names the field of the request in the error. Throws invalid when the work is used up. */
  constructor(private readonly what: string) {}

  spend(steps: number): void {
    this.#left -= steps;
    if (this.#left < 0)
      throw invalid(`${this.what}: patterns take too long to match`, { code: 'PATTERN_TOO_EXPENSIVE' });
  }
}
