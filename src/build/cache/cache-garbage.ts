/** Keeps the build cache within the limits of its rules: soon after builds, but not after each of many. */
import type { BuildCache } from '../../ports/build-cache.js';
import type { Logger } from '../../ports/logger.js';
import { type GcRule, pruneOf } from './gc-rules.js';

export interface CacheGarbageDeps {
  readonly cache: Pick<BuildCache, 'prune'>;
  /** Without rules nothing is removed. */
  readonly rules: readonly GcRule[];
  readonly log: Logger;
}

/** A client may look at what its build has left. */
const DELAY_MS = 1_000;
const INTERVAL_MS = 60_000;

export class CacheGarbage {
  #timer: NodeJS.Timeout | undefined;
  #running: Promise<void> | undefined;
  #lastMs = -Infinity;
  #isClosed = false;

  constructor(private readonly deps: CacheGarbageDeps) {}

  /** Collects in a moment; at most once a minute. */
  schedule(): void {
    if (this.#isClosed || this.#timer !== undefined || this.deps.rules.length === 0) return;
    const delay = Math.max(DELAY_MS, this.#lastMs + INTERVAL_MS - performance.now());
    this.#timer = setTimeout(() => this.#run(), delay).unref();
  }

  async close(): Promise<void> {
    this.#isClosed = true;
    clearTimeout(this.#timer);
    await this.#running;
  }

  #run(): void {
    this.#timer = undefined;
    this.#lastMs = performance.now();
    this.#running = this.#collect().catch((error: unknown) =>
      this.deps.log.error({ err: error }, 'the build cache is not kept small'),
    );
  }

  async #collect(): Promise<void> {
    for (const rule of this.deps.rules) {
      if (this.#isClosed) return;
      const { removed, reclaimed } = await this.deps.cache.prune(pruneOf(rule));
      if (removed.length > 0) this.deps.log.info({ records: removed.length, reclaimed }, 'build cache collected');
    }
  }
}
