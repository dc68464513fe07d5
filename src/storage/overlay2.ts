/** The layer store on overlayfs: contract in ports/storage.ts, directories in overlay2/layout.ts. */
import { closeSync, openSync } from 'node:fs';
import { mkdir, readdir, realpath, rm } from 'node:fs/promises';
import { join } from 'node:path';
import { dataLoss, invalid } from '../errors/engine-error.js';
import type { IdMaps } from '../ports/id-maps.js';
import type { Logger } from '../ports/logger.js';
import type {
  Change,
  Digest,
  LayerDirectories,
  LayerInfo,
  LayerStore,
  LayerTar,
  StagedLayer,
} from '../ports/storage.js';
import { letPass } from '../sys/users/id-access.js';
import { rootOwner } from '../sys/users/id-maps.js';
import { markTopDirectory } from '../sys/files/inode.js';
import { getXattr } from '../sys/files/xattr.js';
import { createWorkerPool, type WorkerPool } from '../workers/pool.js';
import { Durability } from './overlay2/durability.js';
import { InitLayers } from './overlay2/init-layers.js';
import { Layout } from './overlay2/layout.js';
import { fileSystemOf, probeOverlay, untriedOptions } from './overlay2/probe.js';
import { chainIdOf, MAX_DEPTH, ReadOnlyLayers } from './overlay2/read-only-layers.js';
import { SizeLimits } from './overlay2/size-limits.js';
import { tarStream } from './overlay2/tar-stream.js';
import { Trash } from './overlay2/trash.js';
import { WritableLayers } from './overlay2/writable-layers.js';
import { storageError } from './storage-error.js';
import type { UnpackedTar } from './tasks/unpack-tar.js';
import { makeDirectories } from '../sys/files/make-directories.js';

export interface Overlay2Options {
  /** `<data-root>/overlay2`; created when missing. */
  readonly root: string;
  readonly workers: WorkerPool;
  readonly log: Logger;
  /** `name=value`; those of other drivers are ignored. */
  readonly storageOpts?: readonly string[];
  /** Whom the owners of files in images stand for; undefined: themselves. */
  readonly idMaps?: IdMaps | undefined;
}

/**
 * Opens the store: makes its directories and tries out whether overlayfs works there. `load` must be called next.
 * @throws EngineError unavailable when it does not, with the reason; invalid for options that it cannot fulfil.
 */
export async function openOverlay2({
  root,
  workers,
  log,
  storageOpts = [],
  idMaps,
}: Overlay2Options): Promise<Overlay2Store> {
  await makeDirectories(root, { mode: 0o710 });
  // The mount table names real paths.
  const layout = new Layout(await realpath(root));
  const owner = rootOwner(idMaps);
  const { layers, index, writable, staging, unsynced, empty } = layout;
  for (const directory of [layers, index, writable, staging, layout.trash, unsynced, empty]) {
    await makeDirectories(directory, { mode: 0o710 });
  }
  await Promise.all([layout.root, layout.writable].map((directory) => letPass(directory, owner)));
  spreadLayers(layout.staging);
  const trash = new Trash(layout.trash, workers, log);
  const probe = layout.newStaging();
  let mountOptions: string;
  try {
    mountOptions = await probeOverlay(probe);
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'ENOSPC') throw error;
    mountOptions = await untriedOptions();
  } finally {
    // A handful of empty directories: no reason to start a worker thread.
    await rm(probe, { recursive: true, force: true });
    layout.leaveStaging(probe);
  }
  const durability = new Durability(layout.unsynced, workers, log);
  const backing = await fileSystemOf(layout.root);
  const sizes = new SizeLimits(layout.root, backing, storageOpts);
  return new Overlay2Store(layout, workers, trash, durability, sizes, idMaps, { mountOptions, backing: backing.type });
}

/**
 * ext4 would put a new layer where an old one was just deleted, and there it searches past every inode that was freed
 * in the last minutes: unpacking many small files took ten times as long.
 */
function spreadLayers(staging: string): void {
  const fd = openSync(staging, 'r');
  try {
    markTopDirectory(fd);
  } finally {
    closeSync(fd);
  }
}

const READER_THREADS = 2;
const STREAMS_PER_THREAD = 32;

type CommitRequest = Parameters<StagedLayer['commit']>[0];

export class Overlay2Store implements LayerStore {
  readonly driver = 'overlay2';
  readonly driverStatus: readonly (readonly [string, string])[];
  readonly #readOnly: ReadOnlyLayers;
  readonly #writable: WritableLayers;
  readonly #layersFd: number;
  /** Threads of their own for streams: these last as long as their reader likes. */
  readonly #readers = createWorkerPool({ maxThreads: READER_THREADS, tasksPerThread: STREAMS_PER_THREAD });

  constructor(
    private readonly layout: Layout,
    private readonly workers: WorkerPool,
    private readonly trash: Trash,
    private readonly durability: Durability,
    sizes: SizeLimits,
    private readonly idMaps: IdMaps | undefined,
    probed: { readonly mountOptions: string; readonly backing: string },
  ) {
    this.#layersFd = openSync(layout.layers, 'r');
    this.#readOnly = new ReadOnlyLayers(layout, trash, durability, workers);
    this.#writable = new WritableLayers(
      layout,
      this.#readOnly,
      new InitLayers(layout, this.#readOnly, trash, workers, rootOwner(idMaps)),
      sizes,
      trash,
      rootOwner(idMaps),
      probed.mountOptions,
      this.#layersFd,
    );
    this.driverStatus = [
      ['Backing Filesystem', probed.backing === 'ext4' ? 'extfs' : probed.backing],
      // Without d_type the start is refused (probe.ts).
      ['Supports d_type', 'true'],
      ['Using metacopy', 'false'],
      ['Native Overlay Diff', 'true'],
      ['userxattr', 'false'],
    ];
  }

  async load(): Promise<{ readonly removed: readonly string[] }> {
    const removed = await this.#readOnly.load();
    removed.push(...(await this.#writable.load()));
    for (const name of await readdir(this.layout.staging)) {
      await this.trash.take(join(this.layout.staging, name));
      removed.push(`unfinished layer ${name}`);
    }
    // In the background: what is in the trash was given up before, and may be large.
    void this.trash.empty();
    return { removed };
  }

  /** Deletes what is in the trash and closes what is open. Mounted layers stay mounted. */
  async close(): Promise<void> {
    await this.trash.empty();
    await this.durability.close();
    await this.#readers.close();
    closeSync(this.#layersFd);
  }

  find(chainId: Digest): LayerInfo | undefined {
    return this.#readOnly.find(chainId);
  }

  async stage(): Promise<StagedLayer> {
    const directory = this.layout.newStaging();
    const diffDir = join(directory, 'diff');
    await mkdir(directory, { mode: 0o710 });
    await mkdir(diffDir, { mode: 0o755 });
    return {
      diffDir,
      tarSplitPath: join(directory, 'tar-split'),
      idMaps: this.idMaps,
      commit: async (layer) => {
        const info = await this.#commit(directory, layer);
        this.layout.leaveStaging(directory);
        return info;
      },
      discard: async () => {
        await this.trash.take(directory);
        this.layout.leaveStaging(directory);
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

  tarStream(chainId: Digest): NodeJS.ReadableStream {
    const { close, ...tar } = this.openTar(chainId);
    const stream = tarStream(this.#readers, tar);
    stream.once('close', close);
    return stream;
  }

  openTar(chainId: Digest): LayerTar {
    const { shortId, diffId } = this.#readOnly.get(chainId);
    const unpin = this.#readOnly.pin(chainId);
    return {
      diffDir: this.layout.diff(shortId),
      tarSplitPath: this.layout.tarSplit(shortId),
      diffId,
      close: () => void unpin(),
    };
  }

  async tarSize(chainId: Digest): Promise<number> {
    const { shortId } = this.#readOnly.get(chainId);
    return this.#readOnly.pinned(chainId, () =>
      this.#readers.run('tar-size', { tarSplitPath: this.layout.tarSplit(shortId) }),
    );
  }

  async copyLayer(chainId: Digest, parent: Digest | undefined): Promise<LayerInfo> {
    const { shortId, diffId } = this.#readOnly.get(chainId);
    const from = { diffDir: this.layout.diff(shortId), tarSplitPath: this.layout.tarSplit(shortId) };
    return this.#stageFrom(parent, `copying layer ${chainId}`, ({ diffDir, tarSplitPath, idMaps }) =>
      this.#readOnly.pinned(chainId, async () => {
        const copied = await this.workers.run('copy-layer', { from, diffDir, tarSplitPath, idMaps });
        if (copied.diffId !== diffId) throw dataLoss(`layer ${diffId} was changed on disk`, { code: 'LAYER_DAMAGED' });
        return copied;
      }),
    );
  }

  layerData(chainId: Digest): Readonly<Record<string, string>> {
    const [top, ...below] = this.#readOnly.chain(chainId);
    const at = (name: string): string => join(this.layout.layer(top?.shortId ?? ''), name);
    const lower = below.map(({ shortId }) => this.layout.diff(shortId)).join(':');
    return {
      ...(lower === '' ? {} : { LowerDir: lower }),
      MergedDir: at('merged'),
      UpperDir: at('diff'),
      WorkDir: at('work'),
    };
  }

  directories(): LayerDirectories {
    const layers = [...this.#readOnly.all()].map(({ chainId, shortId }) => ({ chainId, name: shortId }));
    return { layers, arriving: this.#readOnly.arriving(), staging: this.layout.staged() };
  }

  async createWritable(
    id: string,
    parent: Digest | undefined,
    storageOpt: Readonly<Record<string, string>> = {},
  ): Promise<void> {
    await this.#writable.create(id, parent, storageOpt);
  }

  mount(id: string): Promise<string> {
    return this.#writable.mount(id);
  }

  unmount(id: string): Promise<void> {
    return this.#writable.unmount(id);
  }

  mountImage(chainId: Digest, at: string): Promise<void> {
    return this.#writable.mountImage(chainId, at);
  }

  removeWritable(id: string): Promise<void> {
    return this.#writable.remove(id);
  }

  writableIds(): string[] {
    return this.#writable.ids();
  }

  graphData(id: string): Readonly<Record<string, string>> {
    const { diff, work, merged } = this.#writable.paths(id);
    return { LowerDir: this.#writable.lowerDirs(id).join(':'), MergedDir: merged, UpperDir: diff, WorkDir: work };
  }

  async changes(id: string): Promise<Change[]> {
    return this.workers.run('changes', {
      diffDir: this.#writable.paths(id).diff,
      lowerDirs: this.#writable.lowerDirs(id),
    });
  }

  async writableSize(id: string): Promise<number> {
    this.#writable.parentOf(id); // not-found rather than the error of a missing directory
    return this.workers.run('tree-size', { path: this.#writable.paths(id).diff });
  }

  chainSize(chainId: Digest): number {
    return this.#readOnly.get(chainId).chainBytes;
  }

  async commitWritable(id: string): Promise<LayerInfo> {
    const parent = this.#writable.parentOf(id);
    return this.#stageFrom(parent, `committing the changes of ${id}`, ({ diffDir, tarSplitPath, idMaps }) =>
      this.workers.run('commit-diff', { upperDir: this.#writable.paths(id).diff, diffDir, tarSplitPath, idMaps }),
    );
  }

  async #stageFrom(
    parent: Digest | undefined,
    doing: string,
    fill: (staged: StagedLayer) => Promise<UnpackedTar>,
  ): Promise<LayerInfo> {
    const staged = await this.stage();
    try {
      return await staged.commit({ parent, ...(await fill(staged)) });
    } catch (error) {
      await staged.discard();
      throw storageError(error, doing);
    }
  }

  async #commit(directory: string, layer: CommitRequest): Promise<LayerInfo> {
    const { diffId, parent, sizeBytes } = layer;
    const chainId = chainIdOf(parent, diffId);
    return this.#readOnly.exclusively(chainId, async () => {
      const present = this.#readOnly.find(chainId);
      if (present) {
        await this.trash.take(directory);
        return present;
      }
      if (parent !== undefined && this.#readOnly.get(parent).depth >= MAX_DEPTH)
        throw invalid('max depth exceeded', { code: 'LAYER_DEPTH' });
      const add = async (): Promise<LayerInfo> => {
        await this.#settle(join(directory, 'diff'), layer);
        return this.#readOnly.add(directory, { chainId, diffId, parent, sizeBytes });
      };
      try {
        return await (parent === undefined ? add() : this.#readOnly.pinned(parent, add));
      } catch (error) {
        throw storageError(error, 'storing layer');
      }
    });
  }

  async #settle(diffDir: string, { parent, implicitDirs, danglingLinks, whiteouts }: CommitRequest): Promise<void> {
    const hidesAll = parent !== undefined && getXattr(diffDir, 'trusted.overlay.opaque') !== undefined;
    const isComplete =
      danglingLinks.length === 0 &&
      whiteouts.length === 0 &&
      (parent === undefined || implicitDirs.length === 0) &&
      !hidesAll;
    if (isComplete) return;
    const lowerDirs = this.#readOnly.chain(parent).map(({ shortId }) => this.layout.diff(shortId));
    await this.workers.run('settle-layer', { diffDir, lowerDirs, implicitDirs, danglingLinks, whiteouts });
  }
}
