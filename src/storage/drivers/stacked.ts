/**
 * The part that drivers share that keep differences as they are, and merge them when a container is mounted:
 *
 *   layers/<name>/diff              the difference of a layer
 *   writable/<id>/{diff,work,merged}  what a container changed, the work directory of the mount, its mount point
 */
import { closeSync, openSync } from 'node:fs';
import { chmod, chown, lstat, mkdir } from 'node:fs/promises';
import { basename, dirname, join } from 'node:path';
import type { Owner } from '../../ports/id-maps.js';
import { mountPointsBelow } from '../../sys/mount/mount.js';
import type { WorkerPool } from '../../workers/pool.js';
import { DIFFERENCE, type Layout } from '../layers/layout.js';
import { removeTrees } from '../remove-few.js';
import type { DriverStatus, StorageDriver } from './driver.js';

export interface StackedParts {
  readonly layout: Layout;
  readonly workers: WorkerPool;
  readonly owner: Owner;
}

export abstract class StackedDriver implements StorageDriver {
  abstract readonly status: DriverStatus;
  protected readonly layout: Layout;
  readonly #parts: StackedParts;
  readonly #layersFd: number;

  constructor(parts: StackedParts) {
    this.#parts = parts;
    this.layout = parts.layout;
    this.#layersFd = openSync(parts.layout.layers, 'r');
  }

  abstract recover(): Promise<readonly string[]>;
  abstract mount(id: string, below: readonly string[], isBrief: boolean): Promise<void>;
  abstract unmount(id: string): Promise<void>;
  abstract mountImage(below: readonly string[], at: string): Promise<void>;

  /**
   * Sees to it that the options of a container will be kept in its directory, which is empty yet.
   * @throws EngineError invalid for options that are not known or cannot be kept.
   */
  protected abstract prepare(directory: string, options: Readonly<Record<string, string>>): void;

  /** The difference is kept as it is. */
  async apply(): Promise<void> {}

  directories(names: readonly string[]): string[] {
    return names.map((name) => join(this.layout.layer(name), DIFFERENCE));
  }

  async createWritable(
    directory: string,
    [top]: readonly string[],
    options: Readonly<Record<string, string>>,
  ): Promise<void> {
    this.prepare(directory, options);
    const { diff, work, merged } = pathsIn(directory);
    const makeDiff = makeUpper(diff, top, this.#parts.owner);
    await Promise.all([makeDiff, mkdir(work, { mode: 0o700 }), mkdir(merged, { mode: 0o700 })]);
  }

  root(id: string): string {
    return this.paths(id).merged;
  }

  async difference(id: string, _below: readonly string[], _scratch: string): Promise<string> {
    return this.paths(id).diff;
  }

  movableDifference(_directory: string): string | undefined {
    return DIFFERENCE;
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
    return removeTrees(this.#parts.workers, paths);
  }

  close(): void {
    closeSync(this.#layersFd);
  }

  protected paths(id: string): StackedPaths {
    return pathsIn(this.layout.container(id));
  }

  /** Returns the IDs of the containers that have something mounted at their mount point. */
  protected async mountedIds(): Promise<string[]> {
    const { writable } = this.layout;
    return (await mountPointsBelow(writable))
      .filter((point) => dirname(dirname(point)) === writable && basename(point) === 'merged')
      .map((point) => basename(dirname(point)));
  }

  /**
   * Returns a list of directories as mounts take it. They are named through the descriptor that a process, named as in
   * /proc, has of the directory of the layers: that is short and has no special characters, wherever they may be.
   */
  protected short(directories: readonly string[], process: 'self' | number): string {
    const { layers, root } = this.layout;
    const base = `/proc/${process}/fd/${this.#layersFd}`;
    return directories
      .map((path) =>
        path.startsWith(`${layers}/`) ? base + path.slice(layers.length) : `${base}/..${path.slice(root.length)}`,
      )
      .join(':');
  }
}

export interface StackedPaths {
  readonly diff: string;
  readonly work: string;
  readonly merged: string;
}

function pathsIn(directory: string): StackedPaths {
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
