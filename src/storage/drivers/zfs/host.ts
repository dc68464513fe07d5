/** The host as the driver `zfs` sees it: the programs `zfs` and `zpool`, mounts, and which dataset a path is on. */
import { existsSync } from 'node:fs';
import { internal, messageOf } from '../../../errors/engine-error.js';
import { fileSystemOf, type FileSystem } from '../../../sys/mount/file-system-of.js';
import { makeMountReadOnly, mountFileSystem } from '../../../sys/mount/mount.js';
import { isOnPath } from '../../../sys/process/on-path.js';
import { runProgram } from '../../../sys/process/spawn.js';
import { ZfsPrograms } from './programs.js';

export interface ZfsHost {
  /** Returns why the host cannot do it, with the remedy; undefined when it can. */
  trouble(): string | undefined;
  /** The file system that a directory is on. */
  fileSystemOf(directory: string): FileSystem;
  /** Runs `zfs`. Resolves with its output. @throws EngineError as `ZfsPrograms`. */
  zfs(...args: readonly string[]): Promise<string>;
  /** Runs `zpool`, in the same way. */
  zpool(...args: readonly string[]): Promise<string>;
  /**
   * Mounts a dataset, which may be mounted elsewhere too. `isForReading`: read-only there, and reading leaves no trace.
   * @throws EngineError internal with the errno's name as code.
   */
  mount(dataset: string, at: string, isForReading: boolean): Promise<void>;
}

// linux/mount.h
const MS_NOATIME = 0x400;

const programs = new ZfsPrograms(runProgram);

export const hostZfs: ZfsHost = {
  trouble() {
    for (const program of ['zfs', 'zpool'])
      if (!isOnPath(program)) return `the program ${program} is not installed: install zfsutils-linux`;
    return existsSync('/dev/zfs') ? undefined : 'this kernel has no ZFS, as /dev/zfs is missing: try `modprobe zfs`';
  },
  fileSystemOf,
  zfs: (...args) => programs.run('zfs', args),
  zpool: (...args) => programs.run('zpool', args),
  async mount(dataset, at, isForReading) {
    try {
      await mountFileSystem(dataset, at, 'zfs', '', isForReading ? MS_NOATIME : 0);
      if (isForReading) await makeMountReadOnly(at);
    } catch (error) {
      throw internal(`mounting the dataset ${dataset}: ${messageOf(error)}`, { cause: error, ...codeOf(error) });
    }
  },
};

function codeOf(error: unknown): { readonly code?: string } {
  const { code } = error as NodeJS.ErrnoException;
  return code === undefined ? {} : { code };
}
