/**
 * Statistics for any number of followers: a container that is followed is read once a second, however many follow it. A
 * follower that is behind gets only the latest reading.
 */
import type { Logger } from '../../ports/logger.js';
import { isEngineError } from '../../errors/engine-error.js';
import type { ContainerUsage, StatsReader } from '../../ports/stats.js';
import { ownsSandbox } from '../../runtime/namespaces.js';
import type { ContainerRecord } from '../container/container.record.js';

/** From one reading to the next. */
const INTERVAL_MS = 1000;

/** One reading; if `usage` is undefined, the container did not run. */
export interface Sample {
  readonly usage: ContainerUsage | undefined;
}

export interface FeedDeps {
  readonly log: Logger;
  readonly reader: StatsReader;
  /** Returns the record that readers see of a container. */
  readonly container: (id: string) => ContainerRecord | undefined;
}

export class StatsFeeds {
  readonly #feeds = new Map<string, Feed>();

  constructor(private readonly deps: FeedDeps) {}

  /** Reads once, now. */
  async once(id: string): Promise<Sample> {
    const container = this.deps.container(id);
    if (!container || container.state.pid === 0) return { usage: undefined };
    try {
      return {
        usage: await this.deps.reader.read({
          id,
          pid: container.state.pid,
          usesHostNetwork: container.hostConfig.NetworkMode === 'host' && !ownsSandbox(container),
        }),
      };
    } catch (error) {
      if (!isEngineError(error, 'not-found')) throw error;
      return { usage: undefined };
    }
  }

  /**
   * Yields readings from now on. The first comes at once: the latest one, if the container is followed already. The
   * feed ends when the container is removed; `return()` settles a pending `next`.
   */
  follow(id: string): AsyncIterableIterator<Sample> {
    let feed = this.#feeds.get(id);
    if (!feed) {
      feed = new Feed(
        () => this.read(id),
        () => this.#feeds.delete(id),
      );
      this.#feeds.set(id, feed);
    }
    return feed.join();
  }

  /** Ends the feeds of a container that is gone. */
  removed(id: string): void {
    this.#feeds.get(id)?.end();
  }

  /** How many containers are read regularly at the moment. */
  get size(): number {
    return this.#feeds.size;
  }

  /** Reads once; a failure is logged and gives no usage. */
  read(id: string): Promise<Sample> {
    return this.once(id).catch((error: unknown) => {
      this.deps.log.warn({ err: error, container: id }, 'statistics cannot be read');
      return { usage: undefined };
    });
  }
}

class Feed {
  readonly #followers = new Set<Follower>();
  #latest: Sample | undefined;
  #timer: NodeJS.Timeout | undefined;

  constructor(
    private readonly read: () => Promise<Sample>,
    private readonly onEmpty: () => void,
  ) {}

  join(): Follower {
    const follower: Follower = new Follower(() => this.#leave(follower));
    this.#followers.add(follower);
    if (this.#latest) follower.push(this.#latest);
    else if (this.#followers.size === 1) void this.#tick();
    return follower;
  }

  end(): void {
    for (const follower of this.#followers) void follower.return();
  }

  #leave(follower: Follower): void {
    if (!this.#followers.delete(follower) || this.#followers.size > 0) return;
    clearTimeout(this.#timer);
    this.onEmpty();
  }

  async #tick(): Promise<void> {
    const sample = await this.read();
    if (this.#followers.size === 0) return;
    this.#latest = sample;
    for (const follower of this.#followers) follower.push(sample);
    // It counts from the end of this reading: the thread that reads may have had to start first.
    this.#timer = setTimeout(() => void this.#tick(), INTERVAL_MS).unref();
  }
}

class Follower implements AsyncIterableIterator<Sample> {
  #pending: Sample | undefined;
  #waiting: ((result: IteratorResult<Sample, undefined>) => void) | undefined;
  #isOver = false;

  constructor(private readonly onLeave: () => void) {}

  [Symbol.asyncIterator](): this {
    return this;
  }

  push(sample: Sample): void {
    const waiting = this.#waiting;
    this.#waiting = undefined;
    if (waiting) waiting({ done: false, value: sample });
    else this.#pending = sample;
  }

  next(): Promise<IteratorResult<Sample, undefined>> {
    const pending = this.#pending;
    this.#pending = undefined;
    if (pending && !this.#isOver) return Promise.resolve({ done: false, value: pending });
    if (this.#isOver) return Promise.resolve({ done: true, value: undefined });
    return new Promise((resolve) => (this.#waiting = resolve));
  }

  return(): Promise<IteratorResult<Sample, undefined>> {
    this.#isOver = true;
    this.#waiting?.({ done: true, value: undefined });
    this.#waiting = undefined;
    this.onLeave();
    return Promise.resolve({ done: true, value: undefined });
  }
}
