/** Counts the reasons for which images must not be removed now. */
import type { Digest } from '../ports/storage.js';

export class ImageHolds {
  readonly #counts = new Map<Digest, number>();

  has(id: Digest): boolean {
    return this.#counts.has(id);
  }

  /** Adds a reason, which lasts until the returned function is called. */
  take(id: Digest): () => void {
    this.#counts.set(id, (this.#counts.get(id) ?? 0) + 1);
    let isHeld = true;
    return () => {
      if (!isHeld) return;
      isHeld = false;
      const left = (this.#counts.get(id) ?? 1) - 1;
      if (left === 0) this.#counts.delete(id);
      else this.#counts.set(id, left);
    };
  }
}
