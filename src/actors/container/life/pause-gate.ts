/**
 * Keeps pauses and starts of execs apart. The process that the runtime puts into a container to become an exec is
 * frozen with the rest when a pause meets it, and the shim, which waits for it, then cannot be told to thaw the
 * container.
 */
export class PauseGate {
  readonly #starts = new Map<string, Set<Promise<unknown>>>();
  readonly #pauses = new Map<string, Promise<unknown>>();

  /** Runs the start of an exec after a pause that is under way. */
  async start<T>(containerId: string, work: () => Promise<T>): Promise<T> {
    for (let pause = this.#pauses.get(containerId); pause; pause = this.#pauses.get(containerId)) {
      await pause.catch(() => undefined);
      // The container shows only in a later turn that it is paused.
      await new Promise((resolve) => setImmediate(resolve));
    }
    const starts = this.#starts.get(containerId) ?? new Set();
    this.#starts.set(containerId, starts);
    const started = Promise.resolve().then(work);
    starts.add(started);
    try {
      return await started;
    } finally {
      starts.delete(started);
      if (starts.size === 0) this.#starts.delete(containerId);
    }
  }

  /** Runs a pause after the starts that are under way. A container has one pause at a time. */
  async pause<T>(containerId: string, work: () => Promise<T>): Promise<T> {
    const paused = Promise.allSettled(this.#starts.get(containerId) ?? new Set<Promise<unknown>>()).then(work);
    this.#pauses.set(containerId, paused);
    try {
      return await paused;
    } finally {
      this.#pauses.delete(containerId);
    }
  }
}
