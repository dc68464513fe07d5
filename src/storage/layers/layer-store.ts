/**
 * The layer store: its contract is in ports/storage.ts, its directories in layout.ts. The driver keeps and mounts the
 * files (drivers/driver.ts).
 */
import { readdir, rename } from 'node:fs/promises';
import { join } from 'node:path';
import type { Readable } from 'node:stream';
import { dataLoss, invalid } from '../../errors/engine-error.js';
import type { IdMaps } from '../../ports/id-maps.js';
import type { Logger } from '../../ports/logger.js';
import type {
  BriefOptions,
  Change,
  Digest,
  GrowingLayer,
  LayerContent,
  LayerDirectories,
  LayerInfo,
  LayerStore,
  LayerTar,
  LayerThreads,
  StagedLayer,
} from '../../ports/storage.js';
import { syncFileSystem } from '../../sys/files/sync-file-system.js';
import { rootOwner } from '../../sys/users/id-maps.js';
import type { WorkerPool } from '../../workers/pool.js';
import type { DriverRow, DriverStatus, StorageDriver } from '../drivers/driver.js';
import { storageError } from '../storage-error.js';
import { chainId } from '../../ports/chain-id.js';
import { Durability } from './durability.js';
import { InitLayers } from './init-layers.js';
import { type Layout, TAR_SPLIT } from './layout.js';
import { unpackChanges } from '../packed-changes.js';
import { MAX_DEPTH, ReadOnlyLayers } from './read-only-layers.js';
import { settle } from './settle.js';
import { makeStage, type StagePlace } from './stage-place.js';
import { tarStream } from './tar-stream.js';
import { Trash } from './trash.js';
import { WritableLayers } from './writable-layers.js';

type CommitRequest = Parameters<StagedLayer['commit']>[0];

export interface LayerStoreParts {
  readonly row: DriverRow;
  readonly driver: StorageDriver;
  readonly layout: Layout;
  readonly workers: WorkerPool;
  /** Streams have their own threads, because they last as long as their reader likes. */
  readonly readers: WorkerPool;
  readonly log: Logger;
  readonly idMaps: IdMaps | undefined;
}

export class DriverLayerStore implements LayerStore {
  readonly driver: string;
  readonly place: string;
  readonly #parts: LayerStoreParts;
  readonly #trash: Trash;
  readonly #durability: Durability;
  readonly #readOnly: ReadOnlyLayers;
  readonly #writable: WritableLayers;

  constructor(parts: LayerStoreParts) {
    const { row, driver, layout, workers, log, idMaps } = parts;
    this.#parts = parts;
    this.driver = row.shownName ?? row.name;
    this.place = row.name;
    const owner = rootOwner(idMaps);
    const trash = (this.#trash = new Trash(layout.trash, (paths) => driver.remove(paths), log));
    this.#durability = new Durability(layout.unsynced, log);
    const readOnly = new ReadOnlyLayers({ layout, driver, trash, durability: this.#durability, workers });
    this.#readOnly = readOnly;
    const inits = new InitLayers({ layout, readOnly, trash, workers, owner });
    this.#writable = new WritableLayers({ layout, driver, readOnly, inits, trash, owner });
  }

  /** Tells that `load` must wait until the supervisor has been started. */
  get needsSupervisor(): boolean {
    return this.#parts.driver.start !== undefined;
  }

  async driverStatus(): Promise<DriverStatus> {
    return this.#parts.driver.status;
  }

  async load(): Promise<{ readonly removed: readonly string[] }> {
    const { driver, log } = this.#parts;
    await driver.start?.();
    for (const warning of driver.warnings ?? []) log.warn({ driver: this.driver }, warning);
    const removed = [...(driver.repaired ?? []), ...(await this.#readOnly.load()), ...(await this.#writable.load())];
    for (const name of await readdir(this.#parts.layout.staging)) {
      await this.#trash.take(join(this.#parts.layout.staging, name));
      removed.push(`unfinished layer ${name}`);
    }
    // This runs in the background, because the trash may be large.
    void this.#trash.empty();
    return { removed };
  }

  /** Deletes what is in the trash and closes what is open. Mounted layers stay mounted. */
  async close(): Promise<void> {
    await this.#trash.empty();
    await this.#durability.close();
    await this.#parts.readers.close();
    await this.#parts.driver.close();
  }

  find(chainId: Digest): LayerInfo | undefined {
    return this.#readOnly.find(chainId);
  }

  recorded(): Promise<void> {
    return this.#durability.recorded();
  }

  reclaimed(): Promise<void> {
    return this.#trash.empty();
  }

  get prefersWholeBelow(): boolean {
    return this.#parts.driver.prefersWholeBelow ?? false;
  }

  async stage(parent?: Digest): Promise<StagedLayer> {
    const directory = this.#parts.layout.newStaging();
    const place = await this.#readOnly.withFound(parent, (below) => makeStage(this.#parts.driver, directory, below));
    return {
      diffDir: place.diffDir,
      tarSplitPath: join(directory, TAR_SPLIT),
      idMaps: this.#parts.idMaps,
      commit: async (layer, threads) => {
        const info = await this.#commit(place, layer, threads);
        this.#parts.layout.leaveStaging(directory);
        return info;
      },
      discard: async () => {
        await this.#trash.take(directory);
        this.#parts.layout.leaveStaging(directory);
      },
    };
  }

  retain(chainId: Digest): void {
    this.#readOnly.retain(chainId);
  }

  release(chainId: Digest): Promise<Digest[]> {
    return this.#readOnly.release(chainId);
  }

  collect(): Promise<Digest[]> {
    return this.#readOnly.collect();
  }

  tarStream(chainId: Digest): Readable {
    const { close, ...tar } = this.openTar(chainId);
    const stream = tarStream(this.#parts.readers, tar);
    stream.once('close', close);
    return stream;
  }

  openTar(chainId: Digest): LayerTar {
    const { diffId } = this.#readOnly.get(chainId);
    const unpin = this.#readOnly.pin(chainId);
    return { ...this.#readOnly.tarSource(chainId), diffId, close: () => void unpin() };
  }

  async tarSize(chainId: Digest): Promise<number> {
    const { tarSplitPath } = this.#readOnly.tarSource(chainId);
    return this.#readOnly.pinned(chainId, () => this.#parts.readers.run('tar-size', { tarSplitPath }));
  }

  async copyLayer(chainId: Digest, parent: Digest | undefined): Promise<LayerInfo> {
    const { diffId } = this.#readOnly.get(chainId);
    const from = this.#readOnly.tarSource(chainId);
    return this.#stageFrom(parent, `copying layer ${chainId}`, ({ diffDir, tarSplitPath, idMaps }) =>
      this.#readOnly.pinned(chainId, async () => {
        const copied = await this.#parts.workers.run('copy-layer', { from, diffDir, tarSplitPath, idMaps });
        if (copied.diffId !== diffId) throw dataLoss(`layer ${diffId} was changed on disk`, { code: 'LAYER_DAMAGED' });
        return copied;
      }),
    );
  }

  /** Returns the layer below a writable one. @throws EngineError not-found. */
  parentOf(id: string): Digest | undefined {
    return this.#writable.parentOf(id);
  }

  /** Calls `work` with the difference of a writable layer. @throws EngineError not-found. */
  withDifference<T>(id: string, work: (diffDir: string) => Promise<T>): Promise<T> {
    return this.#writable.withDifference(id, false, work);
  }

  /** Resolves when all that was made here is on the disk. */
  async sync(): Promise<void> {
    await this.#durability.sync();
    await syncFileSystem(this.#parts.layout.root);
  }

  layerData(chainId: Digest): Readonly<Record<string, string>> | null {
    const { shortId, parent } = this.#readOnly.get(chainId);
    const { driver, layout } = this.#parts;
    return driver.data(layout.layer(shortId), this.#readOnly.directories(parent));
  }

  directories(): LayerDirectories {
    const layers = [...this.#readOnly.all()].map(({ chainId, shortId }) => ({ chainId, name: shortId }));
    return { layers, arriving: this.#readOnly.arriving(), staging: this.#parts.layout.staged() };
  }

  async createWritable(
    id: string,
    parent: Digest | undefined,
    storageOpt: Readonly<Record<string, string>> = {},
    maps?: IdMaps,
  ): Promise<void> {
    await this.#writable.create(id, parent, { storageOpt, maps });
  }

  mapsOf(id: string): IdMaps | undefined {
    return this.#writable.mapsOf(id);
  }

  createBrief(id: string, parent: Digest | undefined, options: BriefOptions): Promise<void> {
    return this.#writable.create(id, parent, { ...options, isBrief: true });
  }

  mount(id: string): Promise<string> {
    return this.#writable.mount(id);
  }

  unmount(id: string): Promise<void> {
    return this.#writable.unmount(id);
  }

  mountImage(chainId: Digest, at: string, label?: string, maps?: IdMaps): Promise<void> {
    const { driver } = this.#parts;
    const below = this.#readOnly.directories(chainId);
    return (maps && driver.mapped?.mountImage(below, at, maps, label)) ?? driver.mountImage(below, at, label);
  }

  removeWritable(id: string): Promise<void> {
    return this.#writable.remove(id);
  }

  writableIds(): string[] {
    return this.#writable.ids();
  }

  rootOf(id: string): string {
    return this.#parts.driver.root(id);
  }

  graphData(id: string): Readonly<Record<string, string>> | null {
    const { driver, layout } = this.#parts;
    return driver.data(layout.container(id), this.#writable.below(id));
  }

  async changes(id: string): Promise<Iterable<Change>> {
    const packed = await this.#writable.withDifference(id, true, (diffDir, lowerDirs) =>
      this.#parts.workers.run('changes', { diffDir, lowerDirs }),
    );
    return unpackChanges(packed);
  }

  writableSize(id: string): Promise<number> {
    return this.#writable.withDifference(id, true, (path) => this.#parts.workers.run('tree-size', { path }));
  }

  chainSize(chainId: Digest): number {
    return this.#readOnly.get(chainId).chainBytes;
  }

  async commitWritable(id: string, signal?: AbortSignal): Promise<LayerInfo> {
    const parent = this.#writable.parentOf(id);
    return this.#stageFrom(parent, `committing the changes of ${id}`, ({ diffDir, tarSplitPath, idMaps }) => {
      const rest = { upperMaps: this.#writable.mapsOf(id) ?? idMaps, diffDir, tarSplitPath, idMaps };
      return this.#writable.withDifference(id, false, (upperDir) =>
        this.#parts.workers.run('commit-diff', { upperDir, ...rest }, signal && { signal }),
      );
    });
  }

  growing(id: string): GrowingLayer | undefined {
    const { driver, layout, idMaps } = this.#parts;
    const directory = layout.container(id);
    const difference = driver.growingDifference?.(directory);
    if (difference === undefined || this.#writable.mapsOf(id) !== undefined) return undefined;
    return { upperDir: join(directory, difference), tarSplitPath: join(directory, TAR_SPLIT), idMaps };
  }

  async sealWritable(id: string, content?: LayerContent): Promise<LayerInfo> {
    const { driver, layout, workers } = this.#parts;
    const parent = this.#writable.parentOf(id);
    const hasOwnUsers = this.#writable.mapsOf(id) !== undefined;
    const difference = hasOwnUsers ? undefined : driver.movableDifference?.(layout.container(id));
    if (difference === undefined) {
      const layer = await this.commitWritable(id);
      await this.#writable.remove(id);
      return layer;
    }
    const taken = await this.#writable.takeOut(id);
    const upperDir = join(taken, difference);
    const lowerDirs = this.#readOnly.directories(parent);
    try {
      return await this.#stageFrom(parent, `committing the changes of ${id}`, async (staged) => {
        const { diffDir, tarSplitPath, idMaps } = staged;
        if (content) await rename(join(taken, TAR_SPLIT), tarSplitPath);
        const sealed = content ?? (await workers.run('seal-diff', { upperDir, lowerDirs, tarSplitPath, idMaps }));
        if (!sealed) return workers.run('commit-diff', { upperDir, upperMaps: idMaps, diffDir, tarSplitPath, idMaps });
        // The directory of the stage is empty: it gives way.
        await rename(upperDir, diffDir);
        return sealed;
      });
    } finally {
      await this.#trash.take(taken);
      layout.leaveStaging(taken);
    }
  }

  async #stageFrom(
    parent: Digest | undefined,
    doing: string,
    fill: (staged: StagedLayer) => Promise<LayerContent>,
  ): Promise<LayerInfo> {
    const staged = await this.stage(parent);
    try {
      return await staged.commit({ parent, ...(await fill(staged)) });
    } catch (error) {
      await staged.discard();
      throw storageError(error, doing);
    }
  }

  async #commit({ directory, diffDir }: StagePlace, layer: CommitRequest, threads?: LayerThreads): Promise<LayerInfo> {
    const { diffId, parent, sizeBytes } = layer;
    const id = chainId(parent, diffId);
    return this.#readOnly.exclusively(id, async () => {
      const present = this.#readOnly.find(id);
      if (present) {
        await this.#trash.take(directory);
        return present;
      }
      if (parent !== undefined && this.#readOnly.get(parent).depth >= MAX_DEPTH)
        throw invalid('max depth exceeded', { code: 'LAYER_DEPTH' });
      const add = async (): Promise<LayerInfo> => {
        const below = this.#readOnly.directories(parent);
        await settle({ workers: this.#parts.workers, threads }, diffDir, below, layer);
        await this.#parts.driver.apply(directory, below, id, diffDir);
        return this.#readOnly.add(directory, { chainId: id, diffId, parent, sizeBytes });
      };
      try {
        return await (parent === undefined ? add() : this.#readOnly.pinned(parent, add));
      } catch (error) {
        throw storageError(error, 'storing layer');
      }
    });
  }
}
