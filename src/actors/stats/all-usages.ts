/**
 * The usage of all running containers at once, for metrics. Not all are read at the same time, because requests need
 * the thread that reads them, too. Readers that come together, or shortly after one another, share one reading.
 */
import type { ContainerUsage } from '../../ports/stats.js';
import type { Sample } from './feeds.js';

/** So many keep the thread for ten milliseconds. */
const AT_A_TIME = 50;
const FRESH_MS = 1000;

export class AllUsages {
  #latest: Promise<ReadonlyMap<string, ContainerUsage>> | undefined;

  constructor(
    /** The ids of containers that run now. */
    private readonly running: () => readonly string[],
    private readonly read: (id: string) => Promise<Sample>,
  ) {}

  /** Returns the usage by id. Containers that end meanwhile are left out. @throws what `read` throws. */
  all(): Promise<ReadonlyMap<string, ContainerUsage>> {
    this.#latest ??= this.#readAll().finally(() => {
      setTimeout(() => (this.#latest = undefined), FRESH_MS).unref();
    });
    return this.#latest;
  }

  async #readAll(): Promise<ReadonlyMap<string, ContainerUsage>> {
    const usages = new Map<string, ContainerUsage>();
    const ids = this.running().values();
    const readNext = async (): Promise<void> => {
      for (const id of ids) {
        const { usage } = await this.read(id);
        if (usage !== undefined) usages.set(id, usage);
      }
    };
    await Promise.all(Array.from({ length: AT_A_TIME }, readNext));
    return usages;
  }
}
