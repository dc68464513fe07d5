/** Counts the lines that a log has lost, and reports them in sums. */
import type { LogObserver } from '../observer.js';

/** Reports are at least this far apart. */
const TOLD_MS = 1000;

export class DropReport {
  total = 0;
  #untold = 0;

  constructor(private readonly observer: LogObserver) {}

  add(lines: number): void {
    if (this.#untold === 0) setTimeout(() => this.tell(), TOLD_MS).unref();
    this.total += lines;
    this.#untold += lines;
  }

  /** Reports the lines that were not reported yet. */
  tell(): void {
    if (this.#untold > 0) this.observer.dropped(this.#untold);
    this.#untold = 0;
  }
}
