/**
 * Sizes of writable layers: `overlay2.size` of the daemon and `size` of a container. XFS keeps them, mounted with
 * `pquota`; elsewhere nobody would, so there they are refused.
 */
import { closeSync, constants, openSync, readdirSync } from 'node:fs';
import { join } from 'node:path';
import { messageOf } from '../../../errors/engine-error.js';
import type { Layout } from '../../layers/layout.js';
import { lastOption, parseSize, refusedOption } from '../size-option.js';
import type { FileSystem } from '../../../sys/mount/file-system-of.js';
import { joinProject, limitProject, projectOf, withRoom } from '../../../sys/mount/project-quota.js';

export const SIZE_OPTION = 'overlay2.size';
/** More than a handful of directories and files takes, with what XFS reserves for each. */
const MOUNT_BYTES = 4 << 20;
const OPEN_DIRECTORY = constants.O_RDONLY | constants.O_DIRECTORY | constants.O_NOFOLLOW;

/**
 * Finds the size that the daemon's options give to every container.
 * @throws EngineError invalid for one that the file system of `root` cannot keep.
 */
export function defaultSize(root: string, backing: FileSystem, storageOpts: readonly string[]): number | undefined {
  const size = lastOption(storageOpts, SIZE_OPTION);
  if (size === undefined) return undefined;
  const type = backing.type === 'ext4' ? 'extfs' : backing.type;
  if (type !== 'xfs')
    throw refusedOption(`Storage Option ${SIZE_OPTION} only supported for backingFS XFS. Found ${type}`);
  if (!keepsSizes(backing))
    throw refusedOption(
      `Storage option ${SIZE_OPTION} not supported. ` +
        'Filesystem does not support Project Quota: it must be mounted with the option pquota',
    );
  return parseSize(size, root);
}

function keepsSizes({ type, options }: FileSystem): boolean {
  return type === 'xfs' && options.some((option) => option === 'prjquota' || option === 'pquota');
}

export class SizeLimits {
  readonly #layout: Layout;
  readonly #isPossible: boolean;
  readonly #defaultBytes: number | undefined;
  /** Undefined until the first limit: finding a free one means to look at every container. */
  #nextProject: number | undefined;

  /**
   * @param storageOpts of the daemon, `name=value`.
   * @throws EngineError invalid for a size that this file system cannot keep.
   */
  constructor(layout: Layout, backing: FileSystem, storageOpts: readonly string[]) {
    this.#layout = layout;
    this.#isPossible = keepsSizes(backing);
    this.#defaultBytes = defaultSize(layout.root, backing, storageOpts);
  }

  /**
   * Bytes that a new writable layer may have; undefined: any number.
   * @throws EngineError invalid for an unknown option and for a size that cannot be kept.
   */
  bytesFor(options: Readonly<Record<string, string>>): number | undefined {
    let bytes = this.#defaultBytes;
    for (const [name, value] of Object.entries(options)) {
      if (name.toLowerCase() !== 'size') throw refusedOption(`Unknown option ${name}`);
      if (!this.#isPossible)
        throw refusedOption("--storage-opt is supported only for overlay over xfs with 'pquota' mount option");
      bytes = parseSize(value, this.#layout.root);
    }
    return bytes === 0 ? undefined : bytes;
  }

  /** Limits what will be made in a directory. */
  apply(directory: string, bytes: number): void {
    const project = this.#nextProject ?? this.#firstFreeProject();
    this.#nextProject = project + 1;
    try {
      withDirectory(directory, (fd) => {
        limitProject(fd, project, bytes);
        joinProject(fd, project);
      });
    } catch (error) {
      throw refusedOption(`the size of the writable layer cannot be limited: ${messageOf(error)}`);
    }
  }

  /** Tells whether the size of what is in the directory of a container is limited. */
  isLimited(directory: string): boolean {
    return this.#isPossible && withDirectory(directory, projectOf) !== withDirectory(this.#layout.root, projectOf);
  }

  /**
   * Runs `work`, which mounts the layer in the directory of a container. overlayfs makes directories then, and where
   * the limit leaves no room for these, it mounts the layer read-only: a full container could not even delete anything.
   */
  async whileMounting(directory: string, work: () => Promise<void>): Promise<void> {
    if (!this.isLimited(directory)) return work();
    const fd = openSync(directory, OPEN_DIRECTORY);
    try {
      await withRoom(fd, projectOf(fd), MOUNT_BYTES, work);
    } finally {
      closeSync(fd);
    }
  }

  /** A number above those of all containers. */
  #firstFreeProject(): number {
    const { root, writable } = this.#layout;
    const taken = readdirSync(writable).map((name) => withDirectory(join(writable, name), projectOf));
    return Math.max(withDirectory(root, projectOf), ...taken) + 1;
  }
}

function withDirectory<T>(path: string, use: (fd: number) => T): T {
  const fd = openSync(path, OPEN_DIRECTORY);
  try {
    return use(fd);
  } finally {
    closeSync(fd);
  }
}
