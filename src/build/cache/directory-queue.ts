/** Gives the directories of one name to those who ask for them, alone or together. */
import type { CacheMountOrder } from '../../ports/build-cache.js';
import type { CacheEntry } from './record-index.js';

export type Sharing = CacheMountOrder['sharing'];

interface Use {
  readonly sharing: Sharing;
  count: number;
}

type Waiter = (entry: CacheEntry) => void;

export class DirectoryQueue {
  readonly #uses = new Map<CacheEntry, Use>();
  readonly #waiters = new Map<string, Waiter[]>();

  /** Returns one of these directories that may be taken now, and takes it. */
  take(entries: readonly CacheEntry[], sharing: Sharing): CacheEntry | undefined {
    const free = entries.filter((entry) => !this.#uses.has(entry));
    // The one that was used last has most of what is wanted.
    const [idle] = free.sort((a, b) => (b.lastUsedAt ?? 0) - (a.lastUsedAt ?? 0));
    const common =
      sharing === 'shared' ? entries.find((entry) => this.#uses.get(entry)?.sharing === 'shared') : undefined;
    const entry = common ?? idle;
    if (entry !== undefined) this.#begin(entry, sharing);
    return entry;
  }

  /** Notes the first use of a directory that is held for it. */
  enter(entry: CacheEntry, sharing: Sharing): void {
    this.#uses.set(entry, { sharing, count: 1 });
  }

  /** Waits for a directory of this name; those who wait get it in the order in which they came. */
  wait(name: string, signal: AbortSignal): Promise<CacheEntry> {
    return new Promise((resolve, reject) => {
      const waiters = this.#waiters.get(name) ?? [];
      this.#waiters.set(name, waiters);
      const leave = (): void => {
        waiters.splice(waiters.indexOf(waiter), 1);
        if (waiters.length === 0) this.#waiters.delete(name);
        reject(signal.reason as Error);
      };
      const waiter = (entry: CacheEntry): void => {
        signal.removeEventListener('abort', leave);
        resolve(entry);
      };
      waiters.push(waiter);
      signal.addEventListener('abort', leave, { once: true });
      if (signal.aborted) leave();
    });
  }

  /** Ends a use. The first one who waits gets the directory when nobody has it any more. */
  end(entry: CacheEntry): void {
    const use = this.#uses.get(entry);
    if (use === undefined) return;
    entry.holds--;
    if (--use.count > 0) return;
    this.#uses.delete(entry);
    const name = entry.record.directoryName ?? '';
    const waiters = this.#waiters.get(name);
    const waiter = waiters?.shift();
    if (waiters?.length === 0) this.#waiters.delete(name);
    if (waiter === undefined) return;
    this.#begin(entry, 'locked');
    waiter(entry);
  }

  #begin(entry: CacheEntry, sharing: Sharing): void {
    entry.holds++;
    const use = this.#uses.get(entry);
    if (use) use.count++;
    else this.enter(entry, sharing);
  }
}
