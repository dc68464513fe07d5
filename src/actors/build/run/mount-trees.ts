/** Bind mounts of a RUN: a place in the files of a stage, an image or a context. */
import { closeSync, constants, fstatSync, openSync, type Stats } from 'node:fs';
import { chmod, chown, mkdir, mkdtemp } from 'node:fs/promises';
import { basename, join } from 'node:path';
import { cleanPath } from '../../../build/files/paths.js';
import { notFound } from '../../../errors/engine-error.js';
import type { IdMaps, Owner } from '../../../ports/id-maps.js';
import type { Logger } from '../../../ports/logger.js';
import { closeFd } from '../../../sys/files/fd.js';
import { O_PATH, openInRoot } from '../../../sys/files/open-in-root.js';
import { hostOwner } from '../../../sys/users/id-maps.js';
import type { WorkerPool } from '../../../workers/pool.js';
import type { Undo } from '../../container/life/undo.js';
import type { StepPlace } from './step-place.js';

/** A directory on this host with files for a step. It does not change while the step runs. */
export interface MountTree {
  readonly directory: string;
  /** Patterns of files that are not there for the build. */
  readonly ignore: readonly string[];
  /** The owners are those that users of steps have on this host, as in files of layers that are shown to them. */
  readonly isMapped: boolean;
}

/** Files on which something is founded, and what tells them from others. */
export interface KnownTree extends MountTree {
  /** Resolves with a text that other files do not have. */
  readonly identity: () => Promise<string>;
}

const ROOT: Owner = { uid: 0, gid: 0 };
const ROOT_MODE = 0o755;

export interface TreeDeps {
  readonly pool: WorkerPool;
  /** Maps the users of steps to those of this host; undefined: they are the same. */
  readonly userMaps: IdMaps | undefined;
  readonly tmpDir: string;
  readonly log: Logger;
}

/** A file or a directory that is open as a place. */
interface Found {
  readonly fd: number;
  readonly stat: Stats;
}

export class MountTrees {
  constructor(
    private readonly deps: TreeDeps,
    private readonly place: StepPlace,
    private readonly undo: Undo,
    private readonly signal: AbortSignal,
  ) {}

  /**
   * Returns a path for the runtime. Links in `source` lead nowhere outside the tree. What is written there is gone when
   * the step ends. @throws EngineError not-found.
   */
  async open(tree: MountTree, source: string, isWritable: boolean): Promise<string> {
    const found = await find(tree, source);
    try {
      if (await this.#needsCopy(tree, source)) return await this.#copied(tree, source, found);
      if (!isWritable) return await this.place.pin(found.fd, found.stat.isDirectory());
      return found.stat.isDirectory()
        ? await this.#overlaid(tree, source, found)
        : await this.#copied(tree, source, found);
    } finally {
      closeFd(found.fd);
    }
  }

  /** Copies the files of a directory, and its attributes, into one that is empty. */
  async copy(tree: MountTree, source: string, directory: string): Promise<void> {
    const found = await find(tree, source);
    try {
      await this.#copyTo(tree, source, found, directory);
    } finally {
      closeFd(found.fd);
    }
  }

  /**
   * Returns the path of a place in a directory that steps write to. Links of theirs lead nowhere outside, also when
   * they are changed while this one runs. @throws EngineError not-found.
   */
  async within(directory: string, place: string): Promise<string> {
    if (cleanPath(place) === '/') return directory;
    const { fd, stat } = await find({ directory, isMapped: true }, place);
    try {
      return await this.place.pin(fd, stat.isDirectory());
    } finally {
      closeFd(fd);
    }
  }

  /** Returns the place of what `copy` makes of a source. @throws EngineError not-found. */
  async placeOfCopy(tree: MountTree, source: string): Promise<string> {
    const { fd, stat } = await find(tree, source);
    closeFd(fd);
    return stat.isDirectory() ? '/' : `/${basename(cleanPath(source))}`;
  }

  /** A tree as it is on the disk cannot be shown when it has files that are left out, or owners of another host. */
  async #needsCopy({ directory, ignore, isMapped }: MountTree, source: string): Promise<boolean> {
    if (!isMapped && this.deps.userMaps !== undefined) return true;
    if (ignore.length === 0) return false;
    return this.deps.pool.run('build-left-out', { root: directory, source, ignore }, { signal: this.signal });
  }

  async #copied(tree: MountTree, source: string, found: Found): Promise<string> {
    const directory = await this.#newDirectory();
    await this.#copyTo(tree, source, found, directory);
    return found.stat.isDirectory() ? directory : join(directory, basename(cleanPath(source)));
  }

  async #overlaid(tree: MountTree, source: string, found: Found): Promise<string> {
    const directory = await this.#newDirectory();
    const [upper, work] = [join(directory, 'upper'), join(directory, 'work')];
    await Promise.all([mkdir(upper), mkdir(work)]);
    await this.#dress(upper, found.stat, found.stat, true);
    try {
      const path = await this.place.overlay(found.fd, upper, work);
      this.undo.add('writable mount', () => this.place.unmount(path));
      return path;
    } catch (error) {
      // A data root that is itself such a file system leaves no room for two more of them.
      this.deps.log.debug({ err: error }, 'the files of a writable mount are copied');
      return this.#copied(tree, source, found);
    }
  }

  async #copyTo(tree: MountTree, source: string, { stat }: Found, directory: string): Promise<void> {
    const { userMaps, pool } = this.deps;
    const { directory: root, ignore, isMapped } = tree;
    // The root of a context is ours on this host, and nobody's there.
    const isContext = !isMapped && cleanPath(source) === '/';
    await this.#dress(directory, stat, isContext ? ROOT : stat, isMapped);
    await pool.run(
      'build-copy',
      {
        trees: [{ root, sources: [literal(cleanPath(source))], ignore, exclude: [] }],
        rootfs: directory,
        destination: '/',
        isIntoDirectory: true,
        owner: undefined,
        isMapped,
        chmod: '',
        unpacks: false,
        parents: false,
        idMaps: userMaps,
      },
      { signal: this.signal },
    );
  }

  /** Gives a directory an owner and the mode of the source. */
  async #dress(directory: string, stat: Stats, owner: Owner, isMapped: boolean): Promise<void> {
    const { userMaps } = this.deps;
    const { uid, gid } = userMaps && !isMapped ? hostOwner(userMaps, owner) : owner;
    await chown(directory, uid, gid);
    await chmod(directory, stat.isDirectory() ? stat.mode & 0o7777 : 0o755);
  }

  async #newDirectory(): Promise<string> {
    const { pool, tmpDir } = this.deps;
    const parent = await mkdtemp(join(tmpDir, 'build-mount-'));
    this.undo.add('files of a mount', () => pool.run('remove-trees', { paths: [parent] }));
    const directory = join(parent, 'files');
    await mkdir(directory);
    return directory;
  }
}

/** Returns a pattern that matches just this path. */
function literal(path: string): string {
  return path.replaceAll(/[*?[\\]/g, '\\$&');
}

/** Finds the place that a mount is from. @throws EngineError not-found. */
async function find(
  { directory, isMapped }: Pick<MountTree, 'directory' | 'isMapped'>,
  source: string,
): Promise<Found> {
  const path = cleanPath(source);
  // The root of a context has no attributes of the client's, and ours are not for every user of an image.
  if (!isMapped && path === '/') await chmod(directory, ROOT_MODE);
  const root = openSync(directory, constants.O_RDONLY | constants.O_DIRECTORY);
  try {
    const fd = openInRoot(root, path, O_PATH);
    return { fd, stat: fstatSync(fd) };
  } catch (error) {
    const { code } = error as NodeJS.ErrnoException;
    if (code !== 'ENOENT' && code !== 'ENOTDIR' && code !== 'ELOOP') throw error;
    throw notFound(`open ${path}: ${code === 'ENOTDIR' ? 'not a directory' : 'no such file or directory'}`, {
      cause: error,
    });
  } finally {
    closeSync(root);
  }
}
