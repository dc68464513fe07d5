/** Snapshots that are differences, as those of the snapshotter `overlayfs`: the kernel's overlay merges them. */
import { closeSync, openSync } from 'node:fs';
import { chmod, chown, lstat, mkdir, rename, rmdir } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import { internal, invalid } from '../../../errors/engine-error.js';
import type { SnapshotMount } from '../../../ports/snapshots.js';
import { detachMount, MAX_MOUNT_OPTIONS_BYTES, mountFileSystem } from '../../../sys/mount/mount.js';
import type { WorkerPool } from '../../../workers/pool.js';
import type { MountOptions } from '../overlay/probe.js';
import { filesOf, type NewContainer, type NewLayer, type SnapshotForm, workOf } from './form.js';

export interface DifferencesParts {
  readonly workers: WorkerPool;
  readonly mountOptions: MountOptions;
  /** Files of a snapshot that has none: the second directory of mounts that need two. */
  readonly empty: () => string;
}

export class DifferencesForm implements SnapshotForm {
  readonly #parts: DifferencesParts;
  /** Descriptors of the directories that hold those of snapshots. */
  readonly #bases = new Map<string, number>();

  constructor(parts: DifferencesParts) {
    this.#parts = parts;
  }

  /** The directory of the difference becomes that of the snapshot, where one file system has both. */
  async fillLayer({ directory, difference, mounts, below }: NewLayer): Promise<void> {
    try {
      await rename(difference, known(filesOf(mounts)));
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code !== 'EXDEV') throw error;
      await this.#copy(directory, difference, mounts, below);
    }
  }

  directories(files: readonly string[]): string[] {
    return [...files];
  }

  /** An init layer is not part of the snapshot: it comes below it when the container is mounted. */
  async fillContainer({ mounts, top, owner }: NewContainer): Promise<void> {
    const files = known(filesOf(mounts));
    const root = top === undefined ? undefined : await lstat(top);
    const { uid, gid } = root ?? owner;
    await chown(files, uid, gid);
    await chmod(files, root ? root.mode & 0o7777 : 0o755);
  }

  async mount(mounts: readonly SnapshotMount[], below: readonly string[], at: string, isBrief: boolean): Promise<void> {
    const { always, brief } = this.#parts.mountOptions;
    const lower = this.#short(below.length === 0 ? [this.#parts.empty()] : below);
    const [upper, work] = [filesOf(mounts), workOf(mounts)].map((path) => this.#short([known(path)]));
    const options = isBrief ? always + brief : always;
    await overlay(`lowerdir=${lower},upperdir=${upper},workdir=${work}${options}`, at);
  }

  async mountImage(below: readonly string[], at: string): Promise<void> {
    const lower = this.#short([...below, this.#parts.empty()]);
    await overlay(`lowerdir=${lower}${this.#parts.mountOptions.always}`, at);
  }

  async difference(files: string): Promise<string> {
    return files;
  }

  close(): void {
    for (const fd of this.#bases.values()) closeSync(fd);
    this.#bases.clear();
  }

  /** Copies a difference through the mounted snapshot, where the kernel makes its own marks. */
  async #copy(
    directory: string,
    difference: string,
    mounts: readonly SnapshotMount[],
    below: readonly string[],
  ): Promise<void> {
    const { workers } = this.#parts;
    const tree = join(directory, 'copied');
    await mkdir(tree, { mode: 0o700 });
    if (workOf(mounts) === undefined) await mountFileSystem(known(filesOf(mounts)), tree, 'none', '', MS_BIND);
    else await this.mount(mounts, below, tree, false);
    try {
      await workers.run('fill-tree', { tree, owner: undefined, differences: [difference] });
    } finally {
      await detachMount(tree);
    }
    await rmdir(tree);
    await workers.run('remove-trees', { paths: [difference] });
  }

  /**
   * Returns a list of directories as mounts take it. Each is named through a descriptor of the directory two above it,
   * which is that of all snapshots: that is short and has no special characters.
   */
  #short(directories: readonly string[]): string {
    return directories
      .map((path) => {
        const base = dirname(dirname(path));
        let fd = this.#bases.get(base);
        if (fd === undefined) this.#bases.set(base, (fd = openSync(base, 'r')));
        return `/proc/self/fd/${fd}${path.slice(base.length)}`;
      })
      .join(':');
  }
}

// linux/mount.h
const MS_BIND = 0x1000;

function known(path: string | undefined): string {
  if (path === undefined) throw internal('the snapshotter hands out other mounts than it did');
  return path;
}

async function overlay(data: string, at: string): Promise<void> {
  if (Buffer.byteLength(data) > MAX_MOUNT_OPTIONS_BYTES)
    throw invalid('the image has too many layers to be mounted', { code: 'LAYER_DEPTH' });
  try {
    await mountFileSystem('overlay', at, 'overlay', data);
  } catch (error) {
    throw internal('mounting the root file system', { cause: error });
  }
}
