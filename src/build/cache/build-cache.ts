/**
 * The build cache on the disk, see ports/build-cache.ts:
 *
 *   records/<id>.json   what a step has made, or a directory that builds write to
 *   directories/<id>/   such a directory
 *   digests/<id>        digests of files in one that came from a client, see files/kept-digests.ts
 *
 * A record holds a reference on its layer. The files of records have the last use, too, which is written some time
 * later: a crash loses the uses of the last seconds.
 */
import { statfs } from 'node:fs/promises';
import { basename, join } from 'node:path';
import type { CachePrune, CacheUsage } from '../../ports/build.js';
import type {
  BuildCache,
  CacheMount,
  CacheMountOrder,
  CacheMounts,
  HeldRecord,
  KeptDirectories,
  KeptDirectoryOrder,
  NewCacheRecord,
  SourceDirectories,
  SourceDirectory,
} from '../../ports/build-cache.js';
import type { Owner } from '../../ports/id-maps.js';
import type { Logger } from '../../ports/logger.js';
import type { Digest, LayerStore } from '../../ports/storage.js';
import { KeyedLock } from '../../storage/keyed-lock.js';
import { makeDirectories } from '../../sys/files/make-directories.js';
import { letPass } from '../../sys/users/id-access.js';
import { inLanes } from '../../text/in-lanes.js';
import type { WorkerPool } from '../../workers/pool.js';
import { CacheDirectories } from './cache-directories.js';
import { DirectoryShelf } from './directory-shelf.js';
import { planPrune } from './prune-plan.js';
import { RecordFiles } from './record-files.js';
import { type CacheEntry, describeEntries, RecordIndex, storedForm } from './record-index.js';
import { newRecordId, type NewStoredRecord, shortDescription, type StoredRecord } from './stored-record.js';

/** Uses are written so long after the first one. */
const SAVE_USES_MS = 10_000;

export interface BuildCacheDeps {
  /** `<data-root>/builder/cache` */
  readonly root: string;
  readonly layers: Pick<LayerStore, 'find' | 'retain' | 'release'>;
  readonly pool: Pick<WorkerPool, 'run'>;
  /** Root of containers on this host. */
  readonly owner: Owner;
  /** Returns all layers of images. */
  readonly imageLayers: () => ReadonlySet<Digest>;
  readonly log: Logger;
}

export interface Pruned {
  readonly removed: readonly CacheUsage[];
  /** Bytes that came free. */
  readonly reclaimed: number;
}

export class FileBuildCache implements BuildCache, SourceDirectories, KeptDirectories {
  readonly #deps: BuildCacheDeps;
  readonly #files: RecordFiles;
  readonly #shelf: DirectoryShelf;
  readonly #directories: CacheDirectories;
  readonly #index = new RecordIndex();
  readonly #lock = new KeyedLock();
  /** Their uses are not on the disk yet. */
  readonly #used = new Set<CacheEntry>();
  #timer: NodeJS.Timeout | undefined;

  constructor(deps: BuildCacheDeps) {
    this.#deps = deps;
    const { root, pool, owner, log } = deps;
    this.#files = new RecordFiles(join(root, 'records'), log);
    this.#shelf = new DirectoryShelf({
      root: join(root, 'directories'),
      digests: join(root, 'digests'),
      pool,
      owner,
    });
    this.#directories = new CacheDirectories({
      shelf: this.#shelf,
      add: (record) => this.#write(record),
      noteUse: (entry) => this.#noteUse(entry),
      changed: (entry) => this.#saveLater(entry),
    });
  }

  /**
   * Reads the records and takes references on their layers, which must be loaded before. Removes what cannot be used.
   */
  async load(): Promise<{ readonly removed: readonly string[] }> {
    const { root, owner, layers } = this.#deps;
    for (const path of [root, ...['records', 'directories', 'digests'].map((name) => join(root, name))])
      await makeDirectories(path, { mode: 0o710 });
    for (const path of [join(root, '..'), root, join(root, 'directories')]) await letPass(path, owner);
    const { records, removed } = await this.#files.load();
    const named = records.filter(({ directoryName }) => directoryName !== undefined);
    const { present, removed: leftovers } = await this.#shelf.load(new Set(named.map(({ id }) => id)));
    const useless: string[] = [];
    const whole = records.filter(({ id, layer, directoryName }) => {
      const isWhole = directoryName === undefined ? layer === undefined || layers.find(layer) : present.has(id);
      if (!isWhole) useless.push(id);
      return isWhole;
    });
    await this.#files.remove(useless);
    for (const { layer } of whole) if (layer !== undefined) layers.retain(layer);
    this.#index.insertAll(whole);
    for (const entry of this.#index.list()) this.#directories.adopt(entry);
    return { removed: [...removed, ...leftovers, ...useless.map((id) => `record ${id}: its files are missing`)] };
  }

  /** Writes what is not on the disk yet. */
  async close(): Promise<void> {
    await this.#directories.settled();
    await this.#saveUses();
    await this.#files.sync();
  }

  /** Returns the IDs of all records. */
  ids(): readonly string[] {
    return this.#index.list().map(({ id }) => id);
  }

  find(key: string): Promise<HeldRecord | undefined> {
    const entry = this.#index.find(key);
    return Promise.resolve(entry?.record.directoryName === undefined ? entry && this.#hold(entry) : undefined);
  }

  add(record: NewCacheRecord): Promise<HeldRecord> {
    const { layers } = this.#deps;
    return this.#lock.run(record.key, async () => {
      const present = this.#index.find(record.key);
      // Two builds made the same at the same time, or a build without the cache has made it again.
      if (present !== undefined && present.record.layer === record.layer) return this.#hold(present);
      if (record.layer !== undefined) layers.retain(record.layer);
      try {
        const id = newRecordId();
        return this.#held(await this.#write({ ...record, id, directoryName: undefined }));
      } catch (error) {
        if (record.layer !== undefined) await layers.release(record.layer);
        throw error;
      }
    });
  }

  async openMounts(orders: readonly CacheMountOrder[], signal: AbortSignal): Promise<CacheMounts> {
    const opened = new Map<string, CacheMount>();
    // One that cannot be given back keeps none of the others.
    const release = async (): Promise<void> => {
      const ends = await Promise.allSettled([...opened.values()].map((mount) => mount.release()));
      const failed = ends.find(({ status }) => status === 'rejected');
      if (failed?.status === 'rejected') throw failed.reason;
    };
    try {
      // All steps ask for locked directories in one order, so that none that waits has what another one waits for.
      for (const order of byId(orders)) opened.set(order.id, await this.openMount(order, signal));
    } catch (error) {
      await release();
      throw error;
    }
    return { directories: orders.map(({ id }) => opened.get(id)?.directory ?? ''), release };
  }

  openMount(order: CacheMountOrder, signal: AbortSignal): Promise<CacheMount> {
    return this.#directories.open({ ...order, type: 'exec.cachemount' }, signal);
  }

  async openSource(order: { readonly id: string; readonly description: string }): Promise<SourceDirectory> {
    const { signal } = new AbortController();
    const mount = await this.#directories.open({ ...order, type: 'source.local', sharing: 'private' }, signal);
    return { ...mount, digests: this.#shelf.digests(basename(mount.directory)) };
  }

  openKept(order: KeptDirectoryOrder, signal: AbortSignal): Promise<CacheMount> {
    return this.#directories.open({ ...order, sharing: 'locked' }, signal);
  }

  async usage(): Promise<readonly CacheUsage[]> {
    await this.#directories.settled();
    const isShared = this.#sharing();
    return describeEntries(this.#index.list(), isShared);
  }

  async prune(selection: CachePrune): Promise<Pruned> {
    await this.#directories.settled();
    const freeBytes = selection.minFreeSpace > 0 ? await this.#freeBytes() : 0;
    const scene = { entries: this.#index.list(), isShared: this.#sharing(), nowMs: Date.now(), freeBytes };
    const planned = planPrune(selection, scene);
    // From here on nobody finds them.
    for (const { entry } of planned) {
      this.#index.remove(entry);
      this.#directories.forget(entry);
      this.#used.delete(entry);
    }
    const reclaimed = await this.#remove(planned.map(({ entry }) => entry));
    // Clients add up the sizes, and files that images have do not come free.
    const removed = planned.map(({ usage }) => (usage.shared ? { ...usage, size: 0 } : usage));
    return { removed, reclaimed };
  }

  /** Removes records and what they hold. Returns the bytes that came free. */
  async #remove(entries: readonly CacheEntry[]): Promise<number> {
    const { layers } = this.#deps;
    await this.#files.remove(entries.map(({ id }) => id));
    let reclaimed = 0;
    const directories: string[] = [];
    for (const { id, record, sizeBytes } of entries) {
      if (record.directoryName !== undefined) {
        directories.push(id);
        reclaimed += sizeBytes;
      } else if (record.layer !== undefined) {
        const sizes = this.#chainSizes(record.layer);
        for (const layer of await layers.release(record.layer)) reclaimed += sizes.get(layer) ?? 0;
      }
    }
    await this.#shelf.remove(directories);
    return reclaimed;
  }

  #chainSizes(top: Digest): Map<Digest, number> {
    const sizes = new Map<Digest, number>();
    for (let layer = this.#deps.layers.find(top); layer; layer = layer.parent && this.#deps.layers.find(layer.parent))
      sizes.set(layer.chainId, layer.sizeBytes);
    return sizes;
  }

  /** Writes a record and adds it, held once. */
  async #write(record: NewStoredRecord): Promise<CacheEntry> {
    const now = Date.now();
    const stored: StoredRecord = {
      ...record,
      description: shortDescription(record.description),
      createdAt: record.createdAt ?? now,
      lastUsedAt: now,
      usageCount: 1,
    };
    await this.#files.write(stored);
    return this.#index.insert(stored, 1);
  }

  #hold(entry: CacheEntry): HeldRecord {
    entry.holds++;
    this.#noteUse(entry);
    return this.#held(entry);
  }

  /** Hands an entry over that is held for the caller. */
  #held(entry: CacheEntry): HeldRecord {
    let isHeld = true;
    const release = (): Promise<void> => {
      if (isHeld) {
        entry.holds--;
        entry.lastUsedAt = Date.now();
        this.#saveLater(entry);
      }
      isHeld = false;
      return Promise.resolve();
    };
    const { key, parents, type, description, layer, isEmpty, sizeBytes, createdAt } = entry.record;
    return { id: entry.id, key, parents, type, description, layer, isEmpty, sizeBytes, createdAt, release };
  }

  #noteUse(entry: CacheEntry): void {
    entry.lastUsedAt = Date.now();
    entry.usageCount++;
    this.#saveLater(entry);
  }

  #saveLater(entry: CacheEntry): void {
    this.#used.add(entry);
    this.#timer ??= setTimeout(() => {
      this.#saveUses().catch((error: unknown) =>
        this.#deps.log.warn({ err: error }, 'uses of the build cache not saved'),
      );
    }, SAVE_USES_MS).unref();
  }

  /** Returns the layers that only the cache has. */
  ownLayers(): ReadonlySet<Digest> {
    const { imageLayers, layers } = this.#deps;
    const ofImages = imageLayers();
    const own = new Set<Digest>();
    for (const { record } of this.#index.list())
      for (let at = record.layer; at !== undefined && !own.has(at) && !ofImages.has(at); at = layers.find(at)?.parent)
        own.add(at);
    return own;
  }

  async #saveUses(): Promise<void> {
    clearTimeout(this.#timer);
    this.#timer = undefined;
    const entries = [...this.#used];
    this.#used.clear();
    // Those that are written at the same time share syncs of the directory.
    await inLanes(entries, (entry) =>
      this.#files.rewrite(entry.id, () => (this.#index.has(entry) ? storedForm(entry) : undefined)),
    );
  }

  #sharing(): (entry: CacheEntry) => boolean {
    const ofImages = this.#deps.imageLayers();
    return ({ record: { layer } }) => layer !== undefined && ofImages.has(layer);
  }

  async #freeBytes(): Promise<number> {
    const { bavail, bsize } = await statfs(this.#deps.root);
    return bavail * bsize;
  }
}

/** Returns one order for each ID, sorted by it. What one wants alone is nobody else's. */
function byId(orders: readonly CacheMountOrder[]): CacheMountOrder[] {
  const strength = ['shared', 'private', 'locked'];
  const found = new Map<string, CacheMountOrder>();
  for (const order of orders) {
    const known = found.get(order.id);
    const isStronger = known && strength.indexOf(order.sharing) > strength.indexOf(known.sharing);
    if (known === undefined) found.set(order.id, order);
    else if (isStronger) found.set(order.id, { ...known, sharing: order.sharing });
  }
  return [...found.values()].sort((a, b) => (a.id < b.id ? -1 : 1));
}
