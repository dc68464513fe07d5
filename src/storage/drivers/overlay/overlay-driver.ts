/**
 * The driver `overlay2`: the kernel's overlay file system merges the differences of layers, which stay as they are.
 *
 *   layers/<name>/diff              the difference of a layer
 *   writable/<id>/{diff,work,merged}  what a container changed, the work directory of overlayfs, its mount point
 *   empty                           nothing, ever: the second directory of mounts that need two
 */
import { closeSync, openSync } from 'node:fs';
import { chmod, chown, lstat, mkdir, rm } from 'node:fs/promises';
import { basename, dirname, join } from 'node:path';
import { internal, invalid } from '../../../errors/engine-error.js';
import type { Owner } from '../../../ports/id-maps.js';
import { makeDirectories } from '../../../sys/files/make-directories.js';
import { fileSystemOf } from '../../../sys/mount/file-system-of.js';
import { detachMount, MAX_MOUNT_OPTIONS_BYTES, mountFileSystem, mountPointsBelow } from '../../../sys/mount/mount.js';
import type { WorkerPool } from '../../../workers/pool.js';
import { DIFFERENCE, type Layout } from '../../layers/layout.js';
import type { DriverContext, DriverRow, DriverStatus, StorageDriver } from '../driver.js';
import { type MountOptions, probeOverlay, untriedOptions } from './probe.js';
import { defaultSize, SIZE_OPTION, SizeLimits } from './size-limits.js';

const EMPTY = 'empty';
const NAME = 'overlay2';

export const overlay2: DriverRow = {
  name: NAME,
  options: [
    { name: SIZE_OPTION, value: 'size' },
    {
      name: 'overlay2.override_kernel_check',
      value: 'any',
      idle: 'overlay2.override_kernel_check was for kernels before 4.0',
    },
  ],
  ownPlaces: [EMPTY],
  check: (directory, storageOpts) => void defaultSize(directory, fileSystemOf(directory), storageOpts),
  open: openOverlay,
};

async function openOverlay({ layout, workers, storageOpts, owner }: DriverContext): Promise<StorageDriver> {
  await makeDirectories(join(layout.root, EMPTY), { mode: 0o710 });
  const mountOptions = await probed(layout);
  const backing = fileSystemOf(layout.root);
  const sizes = new SizeLimits(layout, backing, storageOpts);
  return new OverlayDriver({ layout, workers, sizes, owner, mountOptions, backing: backing.type });
}

async function probed(layout: Layout): Promise<MountOptions> {
  const directory = layout.newStaging();
  try {
    return await probeOverlay(directory);
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'ENOSPC') throw error;
    return await untriedOptions();
  } finally {
    // A handful of empty directories: no reason to start a worker thread.
    await rm(directory, { recursive: true, force: true });
    layout.leaveStaging(directory);
  }
}

interface Parts {
  readonly layout: Layout;
  readonly workers: WorkerPool;
  readonly sizes: SizeLimits;
  readonly owner: Owner;
  readonly mountOptions: MountOptions;
  readonly backing: string;
}

class OverlayDriver implements StorageDriver {
  readonly status: DriverStatus;
  readonly #parts: Parts;
  readonly #layersFd: number;

  constructor(parts: Parts) {
    this.#parts = parts;
    this.#layersFd = openSync(parts.layout.layers, 'r');
    this.status = [
      ['Backing Filesystem', parts.backing === 'ext4' ? 'extfs' : parts.backing],
      // Without d_type the start is refused (probe.ts).
      ['Supports d_type', 'true'],
      ['Using metacopy', 'false'],
      ['Native Overlay Diff', 'true'],
      ['userxattr', 'false'],
    ];
  }

  async recover(): Promise<string[]> {
    const { writable } = this.#parts.layout;
    return (await mountPointsBelow(writable))
      .filter((point) => dirname(dirname(point)) === writable && basename(point) === 'merged')
      .map((point) => basename(dirname(point)));
  }

  /** The difference is kept as it is. */
  async apply(): Promise<void> {}

  directories(names: readonly string[]): string[] {
    return names.map((name) => join(this.#parts.layout.layer(name), DIFFERENCE));
  }

  async createWritable(
    directory: string,
    [top]: readonly string[],
    options: Readonly<Record<string, string>>,
  ): Promise<void> {
    const { sizes, owner } = this.#parts;
    const limitBytes = sizes.bytesFor(options);
    if (limitBytes !== undefined) sizes.apply(directory, limitBytes);
    const { diff, work, merged } = pathsIn(directory);
    await Promise.all([makeUpper(diff, top, owner), mkdir(work, { mode: 0o700 }), mkdir(merged, { mode: 0o700 })]);
  }

  root(id: string): string {
    return this.#paths(id).merged;
  }

  async mount(id: string, below: readonly string[], isBrief: boolean): Promise<void> {
    const { layout, mountOptions } = this.#parts;
    const { diff, work, merged } = this.#paths(id);
    // overlayfs wants something below: without anything else the layer's own empty mount point does.
    const lower = below.length === 0 ? [merged] : below;
    const { always, brief } = mountOptions;
    const last = isBrief ? always + brief : always;
    const options = `lowerdir=${lower.join(':')},upperdir=${diff},workdir=${work}`;
    const isPlain = Buffer.byteLength(options + last) <= MAX_MOUNT_OPTIONS_BYTES && !/[:,\\]/.test(layout.root);
    if (isPlain) return this.#overlay(options + last, merged);
    const short = `lowerdir=${this.#short(lower)},upperdir=${this.#short([diff])},workdir=${this.#short([work])}`;
    return this.#overlay(short + last, merged);
  }

  async unmount(id: string): Promise<void> {
    await detachMount(this.root(id));
  }

  async mountImage(below: readonly string[], at: string): Promise<void> {
    const { layout, mountOptions } = this.#parts;
    // overlayfs wants two read-only directories. An empty one adds nothing. It has to exist as long as the mount: if it
    // were removed, the root of the mount could not be listed any more.
    await this.#overlay(`lowerdir=${this.#short([...below, join(layout.root, EMPTY)])}${mountOptions.always}`, at);
  }

  async difference(id: string): Promise<string> {
    return this.#paths(id).diff;
  }

  movableDifference(directory: string): string | undefined {
    // The files of one with a size would go on counting.
    return this.#parts.sizes.isLimited(directory) ? undefined : DIFFERENCE;
  }

  data(directory: string, below: readonly string[]): Readonly<Record<string, string>> {
    const { diff, work, merged } = pathsIn(directory);
    return {
      ...(below.length === 0 ? {} : { LowerDir: below.join(':') }),
      MergedDir: merged,
      UpperDir: diff,
      WorkDir: work,
    };
  }

  remove(paths: readonly string[]): Promise<void> {
    return this.#parts.workers.run('remove-trees', { paths });
  }

  close(): void {
    closeSync(this.#layersFd);
  }

  #paths(id: string): Paths {
    return pathsIn(this.#parts.layout.container(id));
  }

  /** Directories named through a descriptor of that of the layers, which is short wherever they may be. */
  #short(directories: readonly string[]): string {
    const { layers, root } = this.#parts.layout;
    const base = `/proc/self/fd/${this.#layersFd}`;
    return directories
      .map((path) =>
        path.startsWith(`${layers}/`) ? base + path.slice(layers.length) : `${base}/..${path.slice(root.length)}`,
      )
      .join(':');
  }

  async #overlay(data: string, at: string): Promise<void> {
    if (Buffer.byteLength(data) > MAX_MOUNT_OPTIONS_BYTES)
      throw invalid('the image has too many layers to be mounted', { code: 'LAYER_DEPTH' });
    try {
      await mountFileSystem('overlay', at, 'overlay', data);
    } catch (error) {
      throw internal('mounting the root file system', { cause: error });
    }
  }
}

interface Paths {
  readonly diff: string;
  readonly work: string;
  readonly merged: string;
}

function pathsIn(directory: string): Paths {
  return { diff: join(directory, DIFFERENCE), work: join(directory, 'work'), merged: join(directory, 'merged') };
}

/** The root directory of a container has the attributes of its image's. */
async function makeUpper(path: string, top: string | undefined, owner: Owner): Promise<void> {
  await mkdir(path, { mode: 0o755 });
  const root = top === undefined ? undefined : await lstat(top);
  const { uid, gid } = root ?? owner;
  if (uid !== 0 || gid !== 0) await chown(path, uid, gid);
  await chmod(path, root ? root.mode & 0o7777 : 0o755);
}
