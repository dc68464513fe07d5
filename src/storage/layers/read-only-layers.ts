/** The read-only layers: which exist, who holds them, and how one appears or disappears as a whole. */
import { readdir, rename, rm } from 'node:fs/promises';
import { join } from 'node:path';
import { internal, isEngineError, messageOf, notFound } from '../../errors/engine-error.js';
import type { Digest, LayerInfo } from '../../ports/storage.js';
import type { WorkerPool } from '../../workers/pool.js';
import type { StorageDriver } from '../drivers/driver.js';
import { KeyedLock } from '../keyed-lock.js';
import type { AssembleInput } from '../tar/assemble.js';
import { readRecord, removeRecord } from '../record-store.js';
import { isTemporary, syncDirectory } from '../../sys/files/durable-file.js';
import { inLanes } from '../../text/in-lanes.js';
import type { Durability } from './durability.js';
import { shortId, type Layout } from './layout.js';
import type { Trash } from './trash.js';

/** An image may have so many layers: all of them must fit into the options of a mount. */
export const MAX_DEPTH = 128;

export interface ReadOnlyLayer extends LayerInfo {
  readonly shortId: string;
  /** Number of layers from this one to the lowest. */
  readonly depth: number;
  /** Bytes of this layer and all below it. */
  readonly chainBytes: number;
  /** References, each child counting as one. */
  references: number;
  /** Number of operations of this store that use it now. */
  pins: number;
  /** True if the last reference was dropped while it was pinned. */
  isDoomed: boolean;
}

/** The record of a layer in the index. */
export interface IndexRecord {
  readonly shortId: string;
  readonly chainId: Digest;
  readonly diffId: Digest;
  readonly parent: Digest | null;
  readonly sizeBytes: number;
}

export interface ReadOnlyLayersDeps {
  readonly layout: Layout;
  readonly driver: StorageDriver;
  readonly trash: Trash;
  readonly durability: Durability;
  readonly workers: WorkerPool;
}

export class ReadOnlyLayers {
  readonly #layers = new Map<Digest, ReadOnlyLayer>();
  /** Chain IDs by short IDs. */
  readonly #arriving = new Map<string, Digest>();
  /** Locks by chain ID: a layer must not be added again while its record is being removed. */
  readonly #lock = new KeyedLock();

  constructor(private readonly deps: ReadOnlyLayersDeps) {}

  /**
   * Reads the index. Layers without a record, records without a layer or a parent, and layers that a power cut damaged
   * go to the trash, and are returned.
   */
  async load(): Promise<string[]> {
    const removed: string[] = [];
    const names = new Set(await readdir(this.deps.layout.layers));
    const suspects = new Set(await this.deps.durability.load());
    const records = new Map<Digest, IndexRecord>();
    for (const name of await readdir(this.deps.layout.index)) {
      const path = join(this.deps.layout.index, name);
      const record = isTemporary(name) ? undefined : await this.#read(path);
      const isWhole =
        record !== undefined &&
        this.deps.layout.indexRecord(record.chainId) === path &&
        names.has(record.shortId) &&
        (!suspects.has(record.shortId) || (await this.#verify(record)));
      if (isWhole) records.set(record.chainId, record);
      else {
        await removeRecord(path);
        removed.push(`index record ${name}`);
      }
    }
    for (const chainId of records.keys()) this.#adopt(chainId, records);
    for (const record of records.values()) {
      if (this.#layers.has(record.chainId)) continue;
      await removeRecord(this.deps.layout.indexRecord(record.chainId));
      removed.push(`layer ${record.chainId} without its parent`);
    }
    const known = new Set([...this.#layers.values()].map((layer) => layer.shortId));
    for (const name of names) {
      if (known.has(name)) continue;
      await this.deps.trash.take(this.deps.layout.layer(name));
      removed.push(`layer directory ${name}`);
    }
    await this.deps.durability.keepOnly(known);
    return removed;
  }

  find(chainId: Digest): ReadOnlyLayer | undefined {
    return this.#layers.get(chainId);
  }

  /** Returns a layer. @throws EngineError not-found. */
  get(chainId: Digest): ReadOnlyLayer {
    const layer = this.#layers.get(chainId);
    if (!layer) throw notFound(`layer ${chainId} does not exist`, { code: 'LAYER_NOT_FOUND' });
    return layer;
  }

  /** Returns the layer and those below it, the topmost first; empty for undefined. @throws EngineError not-found. */
  chain(top: Digest | undefined): ReadOnlyLayer[] {
    const chain: ReadOnlyLayer[] = [];
    for (let at = top; at !== undefined;) {
      const layer = this.get(at);
      chain.push(layer);
      at = layer.parent;
    }
    return chain;
  }

  /** Returns the directories of the layer and those below it, as `StorageDriver.directories`. */
  directories(top: Digest | undefined): string[] {
    return this.deps.driver.directories(this.chain(top).map(({ shortId: name }) => name));
  }

  /** Returns the files from which its tar can be rebuilt. @throws EngineError not-found. */
  tarSource(chainId: Digest): AssembleInput {
    return this.#sourceOf(this.get(chainId).shortId);
  }

  /** Returns layers that are in their place, but may not have a record yet. */
  arriving(): { readonly chainId: Digest; readonly name: string }[] {
    return [...this.#arriving].map(([name, chainId]) => ({ chainId, name }));
  }

  all(): Iterable<ReadOnlyLayer> {
    return this.#layers.values();
  }

  /** Runs `work` while nobody else adds or removes this layer. */
  exclusively<T>(chainId: Digest, work: () => Promise<T>): Promise<T> {
    return this.#lock.run(chainId, work);
  }

  /**
   * Moves a complete directory into place. There it survives the end of the daemon, and soon that of the machine. The
   * parent must be pinned, and the chain ID locked, during the call.
   */
  async add(directory: string, layer: LayerInfo): Promise<ReadOnlyLayer> {
    const { chainId, diffId, parent, sizeBytes } = layer;
    const name = await this.#moveIn(directory);
    this.#arriving.set(name, chainId);
    try {
      const record: IndexRecord = { shortId: name, chainId, diffId, parent: parent ?? null, sizeBytes };
      try {
        await this.deps.durability.mark(name);
        await this.deps.durability.writeRecord(this.deps.layout.indexRecord(chainId), record);
      } catch (error) {
        await this.deps.trash.take(this.deps.layout.layer(name));
        throw error;
      }
      if (parent !== undefined) this.retain(parent);
      return this.#insert(record);
    } finally {
      this.#arriving.delete(name);
    }
  }

  retain(chainId: Digest): void {
    const layer = this.get(chainId);
    layer.references++;
    layer.isDoomed = false;
  }

  /** Runs `work` while the layer cannot go. Unlike dropping a reference, ending a pin removes nothing by itself. */
  async pinned<T>(chainId: Digest, work: () => Promise<T>): Promise<T> {
    const unpin = this.pin(chainId);
    try {
      return await work();
    } finally {
      await unpin();
    }
  }

  /** Calls `work` with the directories of a layer and those below it, none if there is no such layer (yet). */
  withFound<T>(top: Digest | undefined, work: (directories: readonly string[]) => Promise<T>): Promise<T> {
    if (top === undefined || !this.find(top)) return work([]);
    return this.pinned(top, () => work(this.directories(top)));
  }

  /** Pins the layer until the returned function is called. */
  pin(chainId: Digest): () => Promise<void> {
    const layer = this.get(chainId);
    layer.pins++;
    return async () => {
      layer.pins--;
      if (layer.isDoomed) await this.#remove(this.#takeUnused(layer));
    };
  }

  /** Drops one reference, and removes layers that nothing references any more. Returns them, the topmost first. */
  async release(chainId: Digest): Promise<Digest[]> {
    const layer = this.get(chainId);
    if (layer.references === 0) throw internal(`layer ${chainId} was released more often than retained`);
    layer.references--;
    layer.isDoomed = layer.references === 0;
    return this.#remove(this.#takeUnused(layer));
  }

  /** Removes all layers that nothing refers to. */
  collect(): Promise<Digest[]> {
    return this.#remove([...this.#layers.values()].flatMap((layer) => this.#takeUnused(layer)));
  }

  /**
   * Takes a layer out of the map, and those below it that were there for it alone, if nothing uses it. Returns them.
   * They must be taken before the first wait of a removal, so that nobody can take a reference on a layer that goes.
   */
  #takeUnused(layer: ReadOnlyLayer): ReadOnlyLayer[] {
    const unused: ReadOnlyLayer[] = [];
    for (
      let at: ReadOnlyLayer | undefined = layer;
      at && at.references === 0 && at.pins === 0 && this.#layers.delete(at.chainId);
    ) {
      unused.push(at);
      at = at.parent === undefined ? undefined : this.#layers.get(at.parent);
      if (!at) break;
      at.references--;
      at.isDoomed = at.references === 0;
    }
    return unused;
  }

  /** Removes layers that are out of the map. One sync is for all of them: with one for each, a hundred take long. */
  async #remove(unused: readonly ReadOnlyLayer[]): Promise<Digest[]> {
    if (unused.length === 0) return [];
    const { layout, trash } = this.deps;
    await inLanes(unused, ({ chainId, shortId: name }) =>
      this.#lock.run(chainId, async () => {
        // If it has come again meanwhile, the record is that of the new one, which stays.
        if (!this.#layers.has(chainId)) await rm(layout.indexRecord(chainId), { force: true });
        await trash.put(layout.layer(name));
      }),
    );
    await syncDirectory(layout.index);
    await trash.relieve();
    return unused.map(({ chainId }) => chainId);
  }

  async #moveIn(directory: string): Promise<string> {
    for (;;) {
      const name = shortId();
      try {
        await rename(directory, this.deps.layout.layer(name));
        return name;
      } catch (error) {
        const { code } = error as NodeJS.ErrnoException;
        if (code !== 'EEXIST' && code !== 'ENOTEMPTY') throw error;
      }
    }
  }

  #verify({ shortId: name, diffId }: IndexRecord): Promise<boolean> {
    return this.deps.workers.run('verify-layer', { ...this.#sourceOf(name), diffId });
  }

  #sourceOf(name: string): AssembleInput {
    const [diffDir = ''] = this.deps.driver.directories([name]);
    return { diffDir, tarSplitPath: this.deps.layout.tarSplit(name) };
  }

  async #read(path: string): Promise<IndexRecord | undefined> {
    try {
      return (await readRecord(path)) as IndexRecord | undefined;
    } catch (error) {
      if (isEngineError(error, 'data-loss')) return undefined;
      throw internal(`reading the layer index: ${messageOf(error)}`, { cause: error });
    }
  }

  #adopt(chainId: Digest, records: ReadonlyMap<Digest, IndexRecord>): void {
    const pending: IndexRecord[] = [];
    for (let at: Digest | null = chainId; at !== null && !this.#layers.has(at);) {
      const record = records.get(at);
      if (!record) return;
      pending.push(record);
      at = record.parent;
    }
    for (const record of pending.toReversed()) {
      if (record.parent !== null) this.retain(record.parent);
      this.#insert(record);
    }
  }

  #insert({ shortId: name, chainId, diffId, parent, sizeBytes }: IndexRecord): ReadOnlyLayer {
    const below = parent === null ? undefined : this.get(parent);
    const layer: ReadOnlyLayer = {
      shortId: name,
      chainId,
      diffId,
      parent: parent ?? undefined,
      sizeBytes,
      depth: (below?.depth ?? 0) + 1,
      chainBytes: (below?.chainBytes ?? 0) + sizeBytes,
      references: 0,
      pins: 0,
      isDoomed: false,
    };
    this.#layers.set(chainId, layer);
    return layer;
  }
}
