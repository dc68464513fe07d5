/**
 * The driver `zfs`: every layer is a dataset with all files of its stack, a clone of the snapshot of the one below it;
 * a container is a clone that is written to. The programs `zfs` and `zpool` make and destroy them.
 *
 *   dataset                     a link whose text is the dataset that has the others below it
 *   layers/<name>/dataset       a link whose text is the dataset of the layer, made before that is
 *   layers/<name>/tree          where it is mounted, read-only, while the daemon runs
 *   writable/<id>/{dataset,tree}  those of a container, mounted while it runs
 */
import { existsSync } from 'node:fs';
import { mkdir, readdir, rmdir, symlink } from 'node:fs/promises';
import { basename, dirname, join } from 'node:path';
import {
  type EngineError,
  internal,
  invalid,
  isEngineError,
  messageOf,
  unavailable,
} from '../../../errors/engine-error.js';
import type { Owner } from '../../../ports/id-maps.js';
import { bindReadOnly, detachMount, makeMountReadOnly, mountPointsBelow } from '../../../sys/mount/mount.js';
import type { WorkerPool } from '../../../workers/pool.js';
import { DIFFERENCE, type Layout } from '../../layers/layout.js';
import { layerGone } from '../../storage-error.js';
import type { DriverContext, DriverRow, DriverStatus, StorageDriver } from '../driver.js';
import { lastOption } from '../size-option.js';
import { originOf, TREE } from '../whole-tree.js';
import { Datasets } from './datasets.js';
import { hostZfs, type ZfsHost } from './host.js';
import { zfsCounting } from './own-bytes.js';
import { datasetAbove, openParent } from './parent.js';
import { DATASET_LINK, datasetIn } from './places.js';
import { PoolStatus } from './pool.js';
import { propertiesOf } from './properties.js';
import { sizeFor } from './sizes.js';

const NAME = 'zfs';
const FSNAME_OPTION = 'zfs.fsname';

export const zfs = zfsRow(hostZfs);

/** The row of the table, with what it asks of the host. */
export function zfsRow(host: ZfsHost): DriverRow {
  return {
    name: NAME,
    options: [{ name: FSNAME_OPTION, value: 'any' }],
    ownPlaces: [DATASET_LINK],
    suits: (directory) => host.fileSystemOf(directory).type === 'zfs' && host.trouble() === undefined,
    check: (directory, storageOpts) => {
      datasetAbove(host, directory, lastOption(storageOpts, FSNAME_OPTION));
      const trouble = host.trouble();
      if (trouble !== undefined) throw unavailable(`storage driver zfs: ${trouble}`, { code: 'ZFS_UNSUPPORTED' });
    },
    counting: zfsCounting,
    open: (context) => openZfs(host, context),
  };
}

async function openZfs(host: ZfsHost, context: DriverContext): Promise<StorageDriver> {
  const { layout, workers, storageOpts, owner } = context;
  const above = datasetAbove(host, layout.root, lastOption(storageOpts, FSNAME_OPTION));
  const { name, store, repaired, warnings } = await openParent(host, layout, above);
  const driver = new ZfsDriver({ host, layout, workers, owner, datasets: new Datasets(host, name, store) });
  driver.repaired.push(...repaired);
  driver.warnings.push(...warnings);
  await driver.load();
  return driver;
}

interface Parts {
  readonly host: ZfsHost;
  readonly layout: Layout;
  readonly workers: WorkerPool;
  readonly owner: Owner;
  readonly datasets: Datasets;
}

class ZfsDriver implements StorageDriver {
  readonly repaired: string[] = [];
  readonly warnings: string[] = [];
  readonly #parts: Parts;
  readonly #pool: PoolStatus;

  constructor(parts: Parts) {
    this.#parts = parts;
    this.#pool = new PoolStatus(parts.host, parts.datasets.parent);
  }

  get status(): Promise<DriverStatus> {
    return this.#pool.rows();
  }

  /** Mounts the layers. Destroys datasets that no directory names, which an end of the machine may leave. */
  async load(): Promise<void> {
    const { layout, datasets } = this.#parts;
    const found = await datasets.list();
    const named = new Set<string>();
    for (const shelf of [layout.layers, layout.writable, layout.staging, layout.trash]) {
      for (const entry of await readdir(shelf)) {
        const name = datasetIn(join(shelf, entry));
        if (name === undefined) continue;
        named.add(name);
        const isKept = shelf === layout.layers || shelf === layout.writable;
        if (isKept && !found.has(name))
          this.warnings.push(
            `the dataset ${datasets.path(name)} of ${join(shelf, entry)} is gone: rename it back if it was renamed, ` +
              'else remove what uses it',
          );
      }
    }
    const orphans = [...found].filter(([name, { isOwn }]) => isOwn && !named.has(name)).map(([name]) => name);
    const errors = orphans.length === 0 ? new Map<string, Error>() : await datasets.destroy(orphans);
    this.repaired.push(...orphans.filter((name) => !errors.has(name)).map((name) => `dataset ${datasets.path(name)}`));
    this.warnings.push(...[...errors.values()].map(messageOf));
    const mounted = new Set(await mountPointsBelow(layout.layers));
    await Promise.all(
      (await readdir(layout.layers)).map(async (entry) => {
        const name = datasetIn(layout.layer(entry));
        if (name !== undefined && found.has(name)) await this.#ensureMounted(join(layout.layer(entry), TREE), mounted);
      }),
    );
  }

  async recover(): Promise<readonly string[]> {
    const { writable } = this.#parts.layout;
    return (await mountPointsBelow(writable))
      .filter((point) => dirname(dirname(point)) === writable && basename(point) === TREE)
      .map((point) => basename(dirname(point)));
  }

  async apply(directory: string, [parent]: readonly string[]): Promise<void> {
    const { workers, datasets } = this.#parts;
    const difference = join(directory, DIFFERENCE);
    const name = await this.#make(directory, parent);
    await this.#fill(directory, name, { owner: undefined, differences: [difference] });
    await makeMountReadOnly(join(directory, TREE));
    await datasets.seal(name);
    await workers.run('remove-trees', { paths: [difference] });
  }

  directories([top]: readonly string[]): string[] {
    return top === undefined ? [] : [join(this.#parts.layout.layer(top), TREE)];
  }

  async createWritable(
    directory: string,
    below: readonly string[],
    options: Readonly<Record<string, string>>,
  ): Promise<void> {
    const { owner } = this.#parts;
    const sizeBytes = await sizeFor(options, () => this.#mostBytes());
    const { image, differences } = originOf(below);
    const name = await this.#make(directory, image, sizeBytes);
    await this.#fill(directory, name, { owner: image === undefined ? owner : undefined, differences });
    await detachMount(join(directory, TREE));
  }

  root(id: string): string {
    return join(this.#parts.layout.container(id), TREE);
  }

  async mount(id: string): Promise<void> {
    await this.#mountTree(this.#parts.layout.container(id), this.root(id), false);
  }

  async unmount(id: string): Promise<void> {
    await detachMount(this.root(id));
  }

  async mountImage([tree]: readonly string[], at: string): Promise<void> {
    if (tree === undefined) return;
    await this.#ensureMounted(tree);
    await bindReadOnly(tree, at);
  }

  /** The container may be mounted and unmounted meanwhile: its files are read at a place of their own. */
  async difference(id: string, below: readonly string[], scratch: string, isShape: boolean): Promise<string> {
    const { layout, workers } = this.#parts;
    for (const path of below) if (basename(path) === TREE) await this.#ensureMounted(path);
    const staging = layout.newStaging();
    // The mount is below the directory that a crash leaves: there the next start looks for mounts.
    const at = join(staging, TREE);
    await mkdir(at, { recursive: true, mode: 0o700 });
    try {
      await this.#mountTree(layout.container(id), at, true);
      await workers.run('compare-trees', { tree: at, below, difference: scratch, isShape });
    } finally {
      await detachMount(at);
      await rmdir(at);
      await rmdir(staging);
      layout.leaveStaging(staging);
    }
    return scratch;
  }

  data(directory: string): Readonly<Record<string, string>> {
    const name = datasetIn(directory);
    return name === undefined ? {} : { Dataset: this.#parts.datasets.path(name), Mountpoint: join(directory, TREE) };
  }

  async remove(paths: readonly string[]): Promise<void> {
    const { workers, datasets } = this.#parts;
    for (const path of paths) for (const point of (await mountPointsBelow(path)).toReversed()) await detachMount(point);
    const names = new Map(paths.map((path) => [path, datasetIn(path)]));
    const wanted = [...names.values()].filter((name) => name !== undefined);
    const errors = wanted.length === 0 ? new Map<string, Error>() : await datasets.destroy(wanted);
    // The directory of one that stays is what names it: it stays too, and the next deletion tries again.
    const gone = paths.filter((path) => !errors.has(names.get(path) ?? ''));
    await workers.run('remove-trees', { paths: gone });
    const [first] = errors.values();
    if (first) throw internal([...errors.values()].map(messageOf).join('; '), { cause: first });
  }

  /** Nobody needs the files of layers then. */
  async close(): Promise<void> {
    const { layers } = this.#parts.layout;
    for (const point of (await mountPointsBelow(layers)).toReversed()) await detachMount(point);
  }

  /** Makes the dataset of a new directory above that of a layer, whose tree is named. */
  async #make(directory: string, below: string | undefined, sizeBytes?: number): Promise<string> {
    const { datasets } = this.#parts;
    const layer = below === undefined ? undefined : datasetIn(dirname(below));
    if (below !== undefined && layer === undefined) throw layerGone(below);
    const name = datasets.newName();
    await symlink(name, join(directory, DATASET_LINK));
    try {
      await datasets.make(name, layer, sizeBytes);
    } catch (error) {
      if (layer === undefined || !isEngineError(error) || error.code !== 'ZFS_MISSING') throw error;
      throw layerGone(datasets.path(layer));
    }
    return name;
  }

  /** Mounts the dataset of a new directory there and carries out differences on it. It stays mounted. */
  async #fill(
    directory: string,
    name: string,
    how: { readonly owner: Owner | undefined; readonly differences: readonly string[] },
  ): Promise<void> {
    const { host, workers, datasets } = this.#parts;
    const tree = join(directory, TREE);
    await mkdir(tree, { mode: 0o700 });
    await host.mount(datasets.path(name), tree, false);
    await workers.run('fill-tree', { tree, ...how });
  }

  async #mountTree(directory: string, at: string, isForReading: boolean): Promise<void> {
    const { host, datasets } = this.#parts;
    const name = datasetIn(directory) ?? '';
    try {
      await host.mount(datasets.path(name), at, isForReading);
    } catch (error) {
      if ((error as EngineError).code !== 'ENOENT' && name !== '') throw error;
      throw invalid(
        `the dataset ${datasets.path(name)} of ${basename(directory)} is gone: if it was renamed, rename it back, ` +
          'else remove the container or image',
        { code: 'DATASET_MISSING', cause: error },
      );
    }
  }

  /** Mounts the tree of a layer if somebody has unmounted it. */
  async #ensureMounted(tree: string, mounted?: ReadonlySet<string>): Promise<void> {
    const points = mounted ?? new Set(await mountPointsBelow(dirname(tree)));
    if (!points.has(tree)) await this.#mountTree(dirname(tree), tree, true);
    // The end of an earlier daemon may have come between the two.
    else if (mounted && existsSync(tree)) await makeMountReadOnly(tree);
  }

  /** All bytes that containers can have. */
  async #mostBytes(): Promise<number> {
    const { host, datasets } = this.#parts;
    const sizes = await propertiesOf(host, datasets.parent, ['used', 'available']);
    return [...(sizes?.values() ?? [])].reduce((sum, bytes) => sum + Number(bytes), 0);
  }
}
