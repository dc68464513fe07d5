/** The children of a collection that have crashed and are not back yet. Each has the facts that are kept for it. */

export interface DownChildrenOptions<Input> {
  /** Returns the input for the next incarnation; undefined: the child stays gone. */
  readonly revive: (id: string) => Promise<Input | undefined> | Input | undefined;
  /** Begins the next incarnation. It must `take` the child. */
  readonly spawn: (id: string, input: Input) => void;
  /** Called when `revive` has failed; `revive` is called again later. */
  readonly onFailure: (id: string, error: unknown) => void;
}

interface Down<Fact> {
  readonly facts: Fact[];
  timer?: NodeJS.Timeout;
  attempt: Promise<void> | undefined;
}

const MOST_BACKOFF_MS = 5_000;
/** At most this many facts are kept for one child. */
const KEPT_FACTS = 1000;

export class DownChildren<Input, Fact> {
  readonly #options: DownChildrenOptions<Input>;
  readonly #downs = new Map<string, Down<Fact>>();

  constructor(options: DownChildrenOptions<Input>) {
    this.#options = options;
  }

  has(id: string): boolean {
    return this.#downs.has(id);
  }

  /**
   * Takes a child that has crashed.
   * @param delayMs undefined: the child is begun only when a command or a fact is for it.
   */
  add(id: string, delayMs: number | undefined): void {
    const down: Down<Fact> = { facts: [], attempt: undefined };
    this.#downs.set(id, down);
    if (delayMs !== undefined) this.#beginLater(id, down, delayMs);
  }

  /** Keeps a fact for a child, which is begun because of it. Returns false when no such child is down. */
  keep(id: string, fact: Fact): boolean {
    const down = this.#downs.get(id);
    if (!down) return false;
    if (down.facts.length < KEPT_FACTS) down.facts.push(fact);
    // Without a timer the budget of this child is spent: nobody else would begin it.
    if (down.timer === undefined) this.#beginLater(id, down, 0);
    return true;
  }

  /** Begins a child now. Rejects with the error of `revive`. */
  async begin(id: string): Promise<void> {
    const down = this.#downs.get(id);
    if (down) await this.#begin(id, down);
  }

  /** Removes a child, which is back or gone for good. Returns the facts that were kept for it. */
  take(id: string): readonly Fact[] {
    const down = this.#downs.get(id);
    clearTimeout(down?.timer);
    this.#downs.delete(id);
    return down?.facts ?? [];
  }

  clear(): void {
    for (const id of this.#downs.keys()) this.take(id);
  }

  #begin(id: string, down: Down<Fact>): Promise<void> {
    const attempt = async (): Promise<void> => {
      const input = await this.#options.revive(id);
      if (this.#downs.get(id) !== down) return;
      if (input === undefined) this.take(id);
      else this.#options.spawn(id, input);
    };
    down.attempt ??= attempt().finally(() => (down.attempt = undefined));
    return down.attempt;
  }

  #beginLater(id: string, down: Down<Fact>, delayMs: number): void {
    down.timer = setTimeout(() => {
      this.#begin(id, down).catch((error: unknown) => {
        this.#options.onFailure(id, error);
        if (this.#downs.get(id) === down) this.#beginLater(id, down, Math.min(delayMs * 2, MOST_BACKOFF_MS));
      });
    }, delayMs).unref();
  }
}
