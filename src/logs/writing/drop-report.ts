/** Counts lines that a log has lost, and tells of them in sums. */
import type { LogObserver } from '../observer.js';

/** Told at most this often. */
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

  /** Tells what was not told yet. */
  tell(): void {
    if (this.#untold > 0) this.observer.dropped(this.#untold);
    this.#untold = 0;
  }
}
