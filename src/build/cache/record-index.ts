/** All records in memory: by ID, by key, and as a tree of parents and children. */
import type { CacheUsage } from '../../ports/build.js';
import type { StoredRecord } from './stored-record.js';

export interface CacheEntry {
  readonly id: string;
  readonly record: StoredRecord;
  readonly parents: readonly CacheEntry[];
  readonly children: Set<CacheEntry>;
  /** Those who use it now. */
  holds: number;
  lastUsedAt: number | undefined;
  usageCount: number;
  sizeBytes: number;
}

export class RecordIndex {
  /** Parents stand before their children. */
  readonly #entries = new Map<string, CacheEntry>();
  /** The newest record of each key. */
  readonly #byKey = new Map<string, CacheEntry>();

  /** Returns all records, parents before their children. */
  list(): CacheEntry[] {
    return [...this.#entries.values()];
  }

  has(entry: CacheEntry): boolean {
    return this.#entries.get(entry.id) === entry;
  }

  find(key: string): CacheEntry | undefined {
    return this.#byKey.get(key);
  }

  /** Adds records that were read from the disk, in any order. */
  insertAll(records: readonly StoredRecord[]): void {
    const waiting = new Map(records.map((record) => [record.id, record]));
    for (const first of [...records].sort((a, b) => a.createdAt - b.createdAt)) {
      // A parent is older than its children, except where the clock has gone back.
      const path = [first];
      for (let record = path.at(-1); record !== undefined; record = path.at(-1)) {
        const missing = record.parents.map((id) => waiting.get(id)).find((parent) => parent && !path.includes(parent));
        if (missing !== undefined) {
          path.push(missing);
          continue;
        }
        path.pop();
        if (waiting.delete(record.id)) this.insert(record);
      }
    }
  }

  /**
   * Adds a record. Parents that are not here any more are left out: the record is found by its key without them.
   */
  insert(record: StoredRecord, holds = 0): CacheEntry {
    const parents = record.parents.flatMap((id) => this.#entries.get(id) ?? []);
    const { id, key, lastUsedAt, usageCount, sizeBytes } = record;
    const entry = { id, record, parents, children: new Set<CacheEntry>(), holds, lastUsedAt, usageCount, sizeBytes };
    for (const parent of parents) parent.children.add(entry);
    this.#entries.set(id, entry);
    this.#byKey.set(key, entry);
    return entry;
  }

  remove(entry: CacheEntry): void {
    for (const parent of entry.parents) parent.children.delete(entry);
    this.#entries.delete(entry.id);
    if (this.#byKey.get(entry.record.key) === entry) this.#byKey.delete(entry.record.key);
  }
}

/** Returns the record as it is to be on the disk now. */
export function storedForm({ record, lastUsedAt, usageCount, sizeBytes }: CacheEntry): StoredRecord {
  return { ...record, lastUsedAt, usageCount, sizeBytes };
}

/**
 * Describes records for clients. A record is in use as long as one that stands on it is.
 * @param entries parents before their children.
 */
export function describeEntries(
  entries: readonly CacheEntry[],
  isShared: (entry: CacheEntry) => boolean,
): CacheUsage[] {
  const used = new Set<CacheEntry>();
  for (const entry of entries.toReversed()) {
    if (entry.holds === 0 && !used.has(entry)) continue;
    used.add(entry);
    for (const parent of entry.parents) used.add(parent);
  }
  return entries.map((entry) => {
    const { record, parents, lastUsedAt, usageCount, sizeBytes } = entry;
    return {
      id: record.id,
      parents: parents.map(({ id }) => id),
      type: record.type,
      description: record.description,
      inUse: used.has(entry),
      shared: isShared(entry),
      size: sizeBytes,
      createdAt: record.createdAt,
      lastUsedAt,
      usageCount,
    };
  });
}
