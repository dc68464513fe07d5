/**
 * Effects that are under way, by the actor that they are for. They outlive an actor that crashes: the next one begins when
 * they are over, for until then nobody can say what there is.
 */
export class InFlight {
  readonly #byId = new Map<string, Set<Promise<unknown>>>();

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

  /** Resolves when none is under way, however they went, or after the limit: one that hangs does not hang the next actor. */
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
