/** Counts the requests in flight of one listener: the bound on them, and what its closing waits for. */

export interface Abortable {
  abort(): void;
}

export interface LiveConnection {
  /** True between requests. */
  readonly idle: boolean;
  close(): void;
}

export class Gate {
  /** Exchanges that had no complete reply when their handler returned. */
  readonly pending = new Set<Abortable>();
  readonly connections = new Set<LiveConnection>();
  /** True when the listener is closing: connections end with their reply. */
  closing = false;
  #inFlight = 0;
  #onIdle: (() => void) | undefined;
  readonly #limit: number;

  constructor(limit: number) {
    this.#limit = limit;
  }

  get full(): boolean {
    return this.#inFlight >= this.#limit;
  }

  enter(): void {
    this.#inFlight++;
  }

  leave(exchange: Abortable): void {
    this.#inFlight--;
    this.pending.delete(exchange);
    if (this.#inFlight === 0) this.#onIdle?.();
  }

  /** Resolves when nothing is in flight. */
  idle(): Promise<void> {
    if (this.#inFlight === 0) return Promise.resolve();
    return new Promise((resolve) => {
      this.#onIdle = resolve;
    });
  }
}
