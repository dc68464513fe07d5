/** The speed of a download, smoothed, to estimate how long the rest takes. */

const INTERVAL_MS = 500;
/** The newest measurement has this weight in the speed. */
const WEIGHT = 0.3;

export class Speed {
  #lastMs = 0;
  #lastBytes = 0;
  #perSecond: number | undefined;

  /**
   * Takes the bytes that have come and estimates the seconds for the rest.
   * @param left bytes that are still missing.
   */
  secondsFor(bytes: number, left: number): number | undefined {
    const now = performance.now();
    if (this.#lastMs === 0 || bytes < this.#lastBytes) {
      this.#lastMs = now;
      this.#lastBytes = bytes;
    } else if (now - this.#lastMs >= INTERVAL_MS) {
      const measured = ((bytes - this.#lastBytes) * 1000) / (now - this.#lastMs);
      this.#perSecond = this.#perSecond === undefined ? measured : this.#perSecond * (1 - WEIGHT) + measured * WEIGHT;
      this.#lastMs = now;
      this.#lastBytes = bytes;
    }
    return this.#perSecond === undefined || this.#perSecond < 1 ? undefined : Math.ceil(left / this.#perSecond);
  }
}
