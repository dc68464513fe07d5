/**
 * The driver of the feature `supervisor-snapshotter`: the files of layers and containers are snapshots of the
 * supervisor, by one of its snapshotters. Layers are committed snapshots with the names of their chain IDs, containers
 * are active ones with theirs, and one lease holds all of them, so that the garbage collection of the supervisor keeps
 * them until they are let go.
 *
 *   snapshotter, lease, root          links whose texts are the name of the snapshotter, that of the lease, and the
 *                                     path of the store
 *   identity                          a link whose text no copy of the directory has
 *   base/                             the snapshot without files that containers without an image stand on
 *   layers/<name>/{snapshot,files}    links: the name of the snapshot, the directory of its files
 *   writable/<id>/{snapshot,files}    the same of a container; `merged` is where its root file system is mounted
 *
 * A daemon that is killed may leave snapshots which the lease holds and no directory names. The next start takes them
 * off the lease, and the supervisor deletes them.
 */
import { mkdir, readdir, rm, stat, symlink } from 'node:fs/promises';
import { basename, dirname, join } from 'node:path';
import { internal, invalid, isEngineError, unavailable } from '../../../errors/engine-error.js';
import type { Snapshots } from '../../../ports/snapshots.js';
import type { Digest } from '../../../ports/storage.js';
import { syncFileSystem } from '../../../sys/files/sync-file-system.js';
import { detachMount, mountPointsBelow } from '../../../sys/mount/mount.js';
import { DIFFERENCE } from '../../layers/layout.js';
import { layerGone } from '../../storage-error.js';
import { removeTrees } from '../../remove-few.js';
import { randomName } from '../../random-name.js';
import type { DriverContext, DriverRow, DriverStatus, StorageDriver, StoreKind } from '../driver.js';
import { mountOptionsFor } from '../overlay/probe.js';
import { refusedOption } from '../size-option.js';
import { DifferencesForm } from './differences.js';
import { filesOf, type SnapshotForm } from './form.js';
import { type HeldSnapshots, withoutSnapshotter } from './held-snapshots.js';
import { ownBytes } from './own-bytes.js';
import {
  BASE,
  FILES_LINK,
  IDENTITY_LINK,
  LEASE_LINK,
  MERGED,
  ROOT_LINK,
  SNAPSHOT_LINK,
  SNAPSHOTTER_LINK,
  textOf,
} from './places.js';
import { startStore } from './start.js';
import { TreesForm } from './trees.js';

export const SNAPSHOTTER_STORE: StoreKind = {
  name: 'supervisor-snapshotter',
  ownPlaces: [BASE, IDENTITY_LINK, LEASE_LINK, ROOT_LINK, SNAPSHOTTER_LINK],
  counting: {
    prepare: () => undefined,
    own: ownBytes,
    elsewhere: (directory) => textOf(directory, FILES_LINK),
  },
};

/** Returns the row of a driver whose layers are these snapshots. */
export function snapshotterRow(snapshots: Snapshots): DriverRow {
  return {
    ...SNAPSHOTTER_STORE,
    shownName: snapshots.snapshotter,
    options: [],
    open: (context) => openSnapshotter(snapshots, context),
  };
}

/** Returns the lease of a store whose driver has been started. */
export function leaseOf(root: string): string {
  const lease = textOf(root, LEASE_LINK);
  if (lease === undefined) throw internal(`${root} has no lease`);
  return lease;
}

async function openSnapshotter(snapshots: Snapshots, context: DriverContext): Promise<StorageDriver> {
  const { root } = context.layout;
  const { snapshotter } = snapshots;
  const before = textOf(root, SNAPSHOTTER_LINK);
  if (before !== undefined && before !== snapshotter)
    throw unavailable(
      `storage driver ${snapshotter}: ${root} has images and containers of the snapshotter ${before}: name that one ` +
        '(storage-driver), or delete the directory to give them up',
      { code: 'OTHER_SNAPSHOTTER' },
    );
  return new SnapshotterDriver(snapshots, context);
}

/** The parts that there are once the supervisor has answered. */
interface Started {
  readonly held: HeldSnapshots;
  readonly form: SnapshotForm;
  /** True when the files are not on the file system of the data root, whose syncs then do not reach them. */
  readonly isElsewhere: boolean;
}

class SnapshotterDriver implements StorageDriver {
  readonly status: DriverStatus = [['driver-type', 'io.containerd.snapshotter.v1']];
  readonly repaired: string[] = [];
  readonly warnings: string[] = [];
  readonly #snapshots: Snapshots;
  readonly #context: DriverContext;
  /** Names of the snapshots of layers, by the directories of their files. */
  readonly #names = new Map<string, string>();
  #state: Started | undefined;

  constructor(snapshots: Snapshots, context: DriverContext) {
    this.#snapshots = snapshots;
    this.#context = context;
  }

  async start(): Promise<void> {
    const { layout, workers } = this.#context;
    const { snapshotter } = this.#snapshots;
    try {
      const { held, form, repaired, warnings } = await startStore(layout, this.#snapshots);
      this.repaired.push(...repaired);
      this.warnings.push(...warnings);
      const empty = (): string => textOf(join(layout.root, BASE), FILES_LINK) ?? '';
      this.#state = {
        held,
        form:
          form === 'trees'
            ? new TreesForm(workers)
            : new DifferencesForm({ workers, mountOptions: await mountOptionsFor(layout), empty }),
        isElsewhere: (await fileSystemId(empty())) !== (await fileSystemId(layout.root)),
      };
    } catch (error) {
      throw withoutSnapshotter(error, snapshotter);
    }
    for (const directory of (await readdir(layout.layers)).map((name) => layout.layer(name)))
      this.#names.set(filesIn(directory), textOf(directory, SNAPSHOT_LINK) ?? '');
  }

  async recover(): Promise<readonly string[]> {
    const { writable } = this.#context.layout;
    return (await mountPointsBelow(writable))
      .filter((point) => dirname(dirname(point)) === writable && basename(point) === MERGED)
      .map((point) => basename(dirname(point)));
  }

  async apply(directory: string, below: readonly string[], chainId: Digest): Promise<void> {
    const { held, form, isElsewhere } = this.#started;
    const { key, mounts } = await held.prepare(`layer-${randomName()}`, this.#nameOf(below[0]));
    const made = [key];
    try {
      await form.fillLayer({ directory, difference: join(directory, DIFFERENCE), mounts, below });
      const files = filesOf(mounts) ?? '';
      if (isElsewhere) await syncFileSystem(files);
      const name = await held.commit(chainId, key);
      made.push(name);
      await symlink(files, join(directory, FILES_LINK));
      await symlink(name, join(directory, SNAPSHOT_LINK));
      this.#names.set(files, name);
    } catch (error) {
      await held.letGo(made);
      throw error;
    }
  }

  directories(names: readonly string[]): string[] {
    const { layout } = this.#context;
    return this.#started.form.directories(names.map((name) => filesIn(layout.layer(name))));
  }

  async createWritable(
    directory: string,
    below: readonly string[],
    options: Readonly<Record<string, string>>,
    id: string,
  ): Promise<void> {
    const { held, form } = this.#started;
    const { layout, owner } = this.#context;
    const [option] = Object.keys(options);
    if (option?.toLowerCase() === 'size')
      throw refusedOption(`--storage-opt size is not supported by the snapshotter ${this.#snapshots.snapshotter}`);
    if (option !== undefined) throw refusedOption(`Unknown option ${option}`);
    const image = below.find((path) => this.#names.has(path));
    const differences = below.filter((path) => !this.#names.has(path)).toReversed();
    const base = textOf(join(layout.root, BASE), SNAPSHOT_LINK);
    const { key, mounts } = await held.prepare(id, this.#nameOf(image) ?? base);
    try {
      await symlink(filesOf(mounts) ?? '', join(directory, FILES_LINK));
      await symlink(key, join(directory, SNAPSHOT_LINK));
      await mkdir(join(directory, MERGED), { mode: 0o700 });
      await form.fillContainer({ mounts, differences, top: below[0], image, owner });
    } catch (error) {
      await held.letGo([key]);
      throw error;
    }
  }

  root(id: string): string {
    return join(this.#context.layout.container(id), MERGED);
  }

  async mount(id: string, below: readonly string[], isBrief: boolean): Promise<void> {
    const { held, form } = this.#started;
    const key = textOf(this.#context.layout.container(id), SNAPSHOT_LINK) ?? '';
    try {
      await form.mount(await held.mounts(key), below, this.root(id), isBrief);
    } catch (error) {
      if (!isEngineError(error, 'not-found')) throw error;
      throw invalid(`the snapshot ${key} of the container was removed from the supervisor: remove the container`, {
        code: 'SNAPSHOT_MISSING',
        cause: error,
      });
    }
  }

  async unmount(id: string): Promise<void> {
    await detachMount(this.root(id));
  }

  mountImage(below: readonly string[], at: string): Promise<void> {
    return this.#started.form.mountImage(below, at);
  }

  difference(id: string, below: readonly string[], scratch: string, isShape: boolean): Promise<string> {
    return this.#started.form.difference(filesIn(this.#context.layout.container(id)), below, scratch, isShape);
  }

  data(): null {
    return null;
  }

  /** Lets the snapshots go before the directories that name them. */
  async remove(paths: readonly string[]): Promise<void> {
    // A killed daemon may have left a mount in a directory that was being filled.
    for (const path of paths) for (const point of (await mountPointsBelow(path)).toReversed()) await detachMount(point);
    const names = paths.flatMap((path) => textOf(path, SNAPSHOT_LINK) ?? []);
    if (names.length > 0) {
      const { held } = this.#started;
      await held.letGo(names);
      // From here on the name is free for a new layer, which a second attempt at this removal must not let go.
      for (const path of paths) await rm(join(path, SNAPSHOT_LINK), { force: true });
      await held.collect();
    }
    for (const path of paths) this.#names.delete(filesIn(path));
    await removeTrees(this.#context.workers, paths);
  }

  close(): void {
    this.#state?.form.close();
  }

  get #started(): Started {
    if (!this.#state) throw internal('the snapshots of the supervisor are not known yet');
    return this.#state;
  }

  /** Returns the name of the snapshot of a layer whose files are named. */
  #nameOf(files: string | undefined): string | undefined {
    if (files === undefined) return undefined;
    const name = this.#names.get(files);
    if (name === undefined) throw layerGone(files);
    return name;
  }
}

/** Returns the directory with the files of a layer or container. Without one it is a path where nothing is. */
function filesIn(directory: string): string {
  return textOf(directory, FILES_LINK) ?? join(directory, FILES_LINK);
}

async function fileSystemId(path: string): Promise<number> {
  return (await stat(path)).dev;
}
