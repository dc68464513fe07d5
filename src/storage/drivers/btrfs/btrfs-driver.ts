/**
 * The driver `btrfs`: every layer is a read-only subvolume with all files of its stack, a snapshot of the one below it;
 * a container is a writable snapshot. Subvolumes are made and deleted by requests to the kernel, not by programs.
 *
 *   layers/<name>/tree         the files of a layer and of those below it
 *   layers/<name>/start        what the containers of an image begin as, from the second one on
 *   layers/<name>/own          a link whose text is how many bytes the layer has alone, if there is one below it
 *   writable/<id>/tree         the root file system of a container
 *   writable/<id>/limit        a link whose text is how many bytes that may be, if the container has a size
 *
 * A read-only subvolume cannot leave its directory, so the store moves the plain directory around it.
 */
import { existsSync, lstatSync, readlinkSync } from 'node:fs';
import { lstat } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import { invalid, messageOf } from '../../../errors/engine-error.js';
import type { Owner } from '../../../ports/id-maps.js';
import { ownBytes } from '../../../sys/btrfs/own-bytes.js';
import {
  cleanLater,
  deleteSubvolumesLater,
  isSubvolume,
  isSubvolumeRoot,
  startCleaning,
  takeSnapshot,
} from '../../../sys/btrfs/subvolumes.js';
import { bindReadOnly } from '../../../sys/mount/mount.js';
import type { WorkerPool } from '../../../workers/pool.js';
import { KeyedLock } from '../../keyed-lock.js';
import { DIFFERENCE, type Layout } from '../../layers/layout.js';
import { removeFew } from '../../remove-few.js';
import type { DriverContext, DriverRow, DriverStatus, StorageDriver } from '../driver.js';
import { type Origin, originOf, TREE } from '../whole-tree.js';
import { LIMIT, OWN, START, startFor } from './places.js';
import { checkFileSystem, statusOf } from './probe.js';
import { leastSize, MIN_SPACE_OPTION, sizeFor } from './sizes.js';

const SUBVOLUMES = [TREE, DIFFERENCE];
const REMOVED = [...SUBVOLUMES, START];
/** So many snapshots for containers are made at a time, the first ones of them on libuv's threads. */
const LANES = 4;
const OWN_LANES = 2;
/** So many directories cost the main thread as much as the start of a worker. */
const MAX_ALONE = 64;
/** The kernel has mostly gone through a deleted subvolume by then. */
const FREE_AFTER_MS = 2_000;

export const btrfs: DriverRow = {
  name: 'btrfs',
  options: [{ name: MIN_SPACE_OPTION, value: 'size' }],
  ownPlaces: [],
  check: (directory, storageOpts) => {
    checkFileSystem(directory);
    leastSize(directory, storageOpts);
  },
  counting: {
    prepare: startCleaning,
    own: (directory) => {
      const noted = notedBytes(directory);
      if (noted !== undefined) return noted;
      const trees = SUBVOLUMES.map((name) => join(directory, name)).filter((path) => isSubvolume(path));
      return trees.reduce((sum, path) => sum + ownBytes(path), 0);
    },
  },
  open: openBtrfs,
};

/** Returns what was written down of a layer that is whole; undefined: its subvolumes tell. */
function notedBytes(directory: string): number | undefined {
  if (isSubvolume(join(directory, DIFFERENCE))) return undefined;
  try {
    return Number(readlinkSync(join(directory, OWN)));
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'ENOENT') return undefined;
    throw error;
  }
}

async function openBtrfs({ layout, workers, storageOpts, owner }: DriverContext): Promise<StorageDriver> {
  checkFileSystem(layout.root);
  const leastBytes = leastSize(layout.root, storageOpts);
  if (leastBytes !== undefined) await keepingSizes(() => workers.run('btrfs-enable-quota', { path: layout.root }));
  return new BtrfsDriver({ layout, workers, owner, leastBytes });
}

interface Parts {
  readonly layout: Layout;
  readonly workers: WorkerPool;
  readonly owner: Owner;
  /** No container may have a smaller size. */
  readonly leastBytes: number | undefined;
}

class BtrfsDriver implements StorageDriver {
  readonly prefersWholeBelow = true;
  readonly #parts: Parts;
  #freeing: NodeJS.Timeout | undefined;
  /** The image of the last container. Most images of a build have one, for which no `start` is worth its while. */
  #lastImage: string | undefined;
  readonly #lanes = new KeyedLock();
  /** Snapshots that are being made in the lanes. */
  #underWay = 0;

  constructor(parts: Parts) {
    this.#parts = parts;
  }

  get status(): DriverStatus {
    return statusOf(this.#parts.layout.root);
  }

  /** There are no mounts: a container's root file system is always in its place. */
  async recover(): Promise<string[]> {
    return [];
  }

  /**
   * The lowest layer of an image stays where it was unpacked, hence a subvolume from the beginning. On a layer that is
   * whole the difference is unpacked into a directory of the new tree, whose entries are moved to their places.
   */
  async stage(at: string, [parent]: readonly string[]): Promise<string> {
    if (parent === undefined) await this.#parts.workers.run('btrfs-make-tree', { at });
    else return this.#parts.workers.run('btrfs-begin-layer', { parent, tree: join(dirname(at), TREE) });
    return at;
  }

  async apply(directory: string, [parent]: readonly string[], _: string, difference: string): Promise<void> {
    await this.#parts.workers.run('btrfs-seal-layer', { difference, parent, tree: join(directory, TREE) });
  }

  directories([top]: readonly string[]): string[] {
    return top === undefined ? [] : [join(this.#parts.layout.layer(top), TREE)];
  }

  async createWritable(
    directory: string,
    below: readonly string[],
    options: Readonly<Record<string, string>>,
  ): Promise<void> {
    const { layout, workers, owner, leastBytes } = this.#parts;
    const sizeBytes = sizeFor(layout.root, options, leastBytes);
    const { image, differences } = originOf(below);
    const isAgain = image === this.#lastImage;
    this.#lastImage = image;
    const make = (): Promise<void> =>
      workers.run('btrfs-make-container', { directory, image, differences, isAgain, sizeBytes, owner });
    if (sizeBytes === undefined && (await this.#begin(join(directory, TREE), { image, differences }, make))) return;
    await (sizeBytes === undefined ? make() : keepingSizes(make));
  }

  /**
   * Makes the tree of a container of an image that has had several: mostly without a worker. The kernel makes snapshots
   * that are wanted at the same time in one transaction, but what is on libuv's threads keeps others waiting, so the
   * workers' threads do some.
   */
  async #begin(tree: string, origin: Origin, byWorker: () => Promise<void>): Promise<boolean> {
    const start = startFor(origin);
    if (start === undefined || !(await areSubvolumes([start, origin.image ?? '']))) return false;
    const lane = this.#underWay++ % LANES;
    try {
      await this.#lanes.run(String(lane), lane < OWN_LANES ? () => takeSnapshot(start, tree) : byWorker);
    } finally {
      this.#underWay--;
    }
    return true;
  }

  root(id: string): string {
    return join(this.#parts.layout.container(id), TREE);
  }

  async mount(id: string): Promise<void> {
    const { layout, workers } = this.#parts;
    const directory = layout.container(id);
    if (!existsSync(join(directory, TREE)))
      throw invalid(`the subvolume ${join(directory, TREE)} of the container was deleted: remove the container`, {
        code: 'SUBVOLUME_MISSING',
      });
    // The link leads nowhere.
    const hasLimit = lstatSync(join(directory, LIMIT), { throwIfNoEntry: false }) !== undefined;
    if (hasLimit) await keepingSizes(() => workers.run('btrfs-renew-limit', { directory }));
  }

  async unmount(): Promise<void> {}

  async mountImage([tree]: readonly string[], at: string): Promise<void> {
    if (tree !== undefined) await bindReadOnly(tree, at);
  }

  async difference(id: string, below: readonly string[], scratch: string, isShape: boolean): Promise<string> {
    await this.#parts.workers.run('compare-trees', { tree: this.root(id), below, difference: scratch, isShape });
    return scratch;
  }

  data(): Readonly<Record<string, string>> {
    return {};
  }

  async remove(paths: readonly string[]): Promise<void> {
    const { layout, workers } = this.#parts;
    const isGone = paths.length <= MAX_ALONE && (await this.#removeFew(paths));
    if (!isGone) await workers.run('btrfs-remove', { paths, names: REMOVED });
    // It is no harm when this fails: the kernel does it by itself, later.
    const free = (): void => {
      this.#freeing = undefined;
      void cleanLater(layout.root).catch(() => undefined);
    };
    this.#freeing ??= setTimeout(free, FREE_AFTER_MS).unref();
  }

  /** Removes directories without a worker, whose start would cost more. Returns false when not all of it goes so. */
  async #removeFew(paths: readonly string[]): Promise<boolean> {
    let isAny = false;
    try {
      for (const path of paths) isAny = (await deleteSubvolumesLater(path, REMOVED)) || isAny;
      return await removeFew(paths);
    } catch {
      return false;
    } finally {
      if (isAny) await cleanLater(this.#parts.layout.root).catch(() => undefined);
    }
  }

  close(): void {
    clearTimeout(this.#freeing);
  }
}

/** Tells it of paths on btrfs. */
async function areSubvolumes(paths: readonly string[]): Promise<boolean> {
  const stats = await Promise.all(paths.map((path) => lstat(path, { bigint: true }).catch(() => undefined)));
  return stats.every((stat) => stat !== undefined && isSubvolumeRoot(stat));
}

/** Tells what to do when the file system cannot keep sizes. */
async function keepingSizes(work: () => Promise<void>): Promise<void> {
  try {
    await work();
  } catch (error) {
    const { syscall } = (error as { readonly details?: { readonly syscall?: string } }).details ?? {};
    if (!syscall || !/QUOTA|QGROUP/.test(syscall)) throw error;
    throw invalid(
      `btrfs: the quota groups of the file system, which keep sizes, cannot be used (${messageOf(error)}): try ` +
        '`btrfs quota enable` on the data root, or leave the size out',
      { code: 'STORAGE_OPTION', cause: error },
    );
  }
}
