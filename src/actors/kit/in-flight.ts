/**
 * Keeps the effects that are under way, by the actor that began them. Effects outlive an actor that crashes: the next
 * actor begins when they are over, because until then nobody can say what state they leave.
 */
export class InFlight {
  readonly #byId = new Map<string, Set<Promise<unknown>>>();

  /** Number of those who have an effect under way. */
  get count(): number {
    return this.#byId.size;
  }

  ids(): string[] {
    return [...this.#byId.keys()];
  }

  /** Notes an effect until it is settled, and returns it. */
  note<T>(id: string, work: Promise<T>): Promise<T> {
    const all = this.#byId.get(id) ?? new Set();
    this.#byId.set(id, all.add(work));
    const over = (): void => {
      all.delete(work);
      if (all.size === 0 && this.#byId.get(id) === all) this.#byId.delete(id);
    };
    work.then(over, over);
    return work;
  }

  /**
   * Resolves when no effect is under way, whether they succeeded or failed. It also resolves after the limit, so that
   * an effect that hangs does not block the next actor.
   */
  async settled(id: string, limitMs: number): Promise<void> {
    const over = Date.now() + limitMs;
    for (let all = this.#byId.get(id); all && Date.now() < over; all = this.#byId.get(id)) {
      let timer: NodeJS.Timeout | undefined;
      const limit = new Promise<void>((resolve) => (timer = setTimeout(resolve, over - Date.now()).unref()));
      await Promise.race([Promise.allSettled(all), limit]);
      clearTimeout(timer);
    }
  }
}
