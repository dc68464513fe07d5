/** Stores of one driver below a temporary directory, and what tests of drivers do with them. Needs root. */
import assert from 'node:assert/strict';
import { mkdtempSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { Logger } from '../../../src/ports/logger.js';
import type { Digest, LayerContent, LayerInfo, StagedLayer } from '../../../src/ports/storage.js';
import type { DriverRow } from '../../../src/storage/drivers/driver.js';
import type { DriverLayerStore } from '../../../src/storage/layers/layer-store.js';
import { openLayerStore } from '../../../src/storage/layers/open-layer-store.js';
import { removeTrees } from '../../../src/storage/tasks/remove-trees.js';
import { LayerExtractor } from '../../../src/storage/tar/layer-extractor.js';
import { detachMount, mountPointsBelow } from '../../../src/sys/mount/mount.js';
import { createWorkerPool } from '../../../src/workers/pool.js';
import { type LayerEntry, sha256, tarOf } from '../image-builder.js';

/** Chains of random layers, each of another seed. The long run: CHAINS=100. */
const CHAINS = Number(process.env['CHAINS'] ?? 4);
/** So many layers can be below a container: with its own two, as many as a store takes. */
export const MOUNTABLE_DEPTH = 126;

interface Sizes {
  readonly depth: number;
  readonly chains: number;
}

/** Things that are special about the tests of a driver. */
export interface TestPlace {
  /** A directory of a file system that the driver needs. */
  readonly directory?: string;
  /** Lets a test damage a layer in this directory. */
  readonly makeWritable?: (directory: string) => void;
  /** Layers of a deep chain, and chains of random layers. Default: `MOUNTABLE_DEPTH` and `CHAINS`. */
  readonly sizes?: Partial<Sizes>;
  /** Things that its file system cannot do. */
  readonly cannot?: readonly Inability[];
}

/** A directory above a symbolic link that leads in a circle; a file whose name looks like that of a whiteout. */
export type Inability = 'hide circles of links' | 'make names of whiteouts';

export class DriverHarness {
  readonly workers = createWorkerPool({ maxThreads: 2 });
  /** All stores share them: to start a thread takes 150 ms of processor time here. */
  readonly #readers = createWorkerPool({ maxThreads: 1, tasksPerThread: 32 });
  readonly log: Logger = {
    debug: () => undefined,
    info: () => undefined,
    warn: assert.fail,
    error: assert.fail,
    child: () => this.log,
  };
  readonly #stores: DriverLayerStore[] = [];

  constructor(
    readonly driver: DriverRow,
    readonly temp = mkdtempSync(join(tmpdir(), 'storage-')),
    private readonly place: TestPlace = {},
  ) {}

  makeWritable(directory: string): void {
    this.place.makeWritable?.(directory);
  }

  get sizes(): Sizes {
    return { depth: MOUNTABLE_DEPTH, chains: CHAINS, ...this.place.sizes };
  }

  can(what: Inability): boolean {
    return this.place.cannot?.includes(what) !== true;
  }

  /** Opens the store of a name, as a start of the daemon does. The caller loads and closes it. */
  open(name: string): Promise<DriverLayerStore> {
    const { driver, workers, log } = this;
    const readers = { ...this.#readers, queued: 0, close: async () => undefined };
    return openLayerStore({ driver, root: join(this.temp, name), workers, readers, log });
  }

  /** A loaded store that `close` closes. */
  async newStore(name: string): Promise<DriverLayerStore> {
    const store = await this.open(name);
    this.#stores.push(store);
    await store.load();
    return store;
  }

  /** Takes all away, also what stores have mounted that a failed test has not closed. */
  async close(): Promise<void> {
    let mounts: string[] = [];
    try {
      for (const store of this.#stores) {
        for (const id of store.writableIds()) await store.removeWritable(id);
        await store.close();
      }
    } finally {
      for (const pool of [this.workers, this.#readers]) await pool.close();
      mounts = await mountPointsBelow(this.temp);
      for (const point of mounts.toReversed()) await detachMount(point);
      removeTrees({ paths: [this.temp] });
    }
    assert.deepEqual(mounts, [], 'something stays mounted');
  }

  async addTar(store: DriverLayerStore, parent: Digest | undefined, tar: Buffer): Promise<LayerInfo> {
    const staged = await store.stage(parent);
    try {
      return await staged.commit({ parent, ...unpack(staged, tar) });
    } catch (error) {
      await staged.discard();
      throw error;
    }
  }

  /** Adds layers from the lowest up and takes a reference on the top. */
  async addLayers(store: DriverLayerStore, layers: readonly (readonly LayerEntry[])[]): Promise<Digest> {
    let parent: Digest | undefined;
    for (const entries of layers) parent = (await this.addTar(store, parent, tarOf(entries))).chainId;
    assert.ok(parent);
    store.retain(parent);
    return parent;
  }

  /** Calls `work` with the root of a container, which is made when it is not there. */
  async mounted<T>(
    store: DriverLayerStore,
    id: string,
    parent: Digest | undefined,
    work: (root: string) => T | Promise<T>,
  ): Promise<T> {
    if (!store.writableIds().includes(id)) await store.createWritable(id, parent);
    const root = await store.mount(id);
    try {
      return await work(root);
    } finally {
      await store.unmount(id);
    }
  }
}

/** Unpacks a tar into a staged layer. Returns what its commit needs. */
export function unpack(staged: StagedLayer, tar: Buffer): LayerContent {
  const extractor = new LayerExtractor(staged);
  extractor.write(tar);
  const { sizeBytes, implicitDirs, danglingLinks, whiteouts } = extractor.finish();
  return { diffId: sha256(tar), sizeBytes, implicitDirs, danglingLinks, whiteouts };
}

/** Tests by their names. */
export type DriverTests = Readonly<Record<string, (harness: DriverHarness) => Promise<void>>>;
