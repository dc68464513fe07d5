/** The host as the driver `zfs` sees it: the programs `zfs` and `zpool`, mounts, and which dataset a path is on. */
import { existsSync } from 'node:fs';
import { type EngineError, internal, messageOf } from '../../../errors/engine-error.js';
import { fileSystemOf, type FileSystem } from '../../../sys/mount/file-system-of.js';
import { makeMountReadOnly, mountFileSystem } from '../../../sys/mount/mount.js';
import { isOnPath } from '../../../sys/process/on-path.js';
import { runProgram } from '../../../sys/process/spawn.js';
import { KeyedLock } from '../../keyed-lock.js';

export interface ZfsHost {
  /** Returns why the host cannot do it, with the remedy; undefined when it can. */
  trouble(): string | undefined;
  /** The file system that a directory is on. */
  fileSystemOf(directory: string): FileSystem;
  /** Runs `zfs`. Resolves with its output. @throws EngineError internal, with one of `ZFS_CODES` if it is known why. */
  zfs(...args: readonly string[]): Promise<string>;
  /** Runs `zpool`, in the same way. */
  zpool(...args: readonly string[]): Promise<string>;
  /**
   * Mounts a dataset, which may be mounted elsewhere too. `isForReading`: read-only there, and reading leaves no trace.
   * @throws EngineError internal with the errno's name as code.
   */
  mount(dataset: string, at: string, isForReading: boolean): Promise<void>;
}

/** The programs say this of errors, and the code that the error has here. */
const ZFS_CODES: readonly (readonly [says: RegExp, code: string])[] = [
  [/dataset does not exist|no such pool/, 'ZFS_MISSING'],
  [/has children|dependent clones/, 'ZFS_HAS_CHILDREN'],
  [/is busy/, 'ZFS_BUSY'],
  [/out of space/, 'ENOSPC'],
  [/I\/O error|pool I\/O is currently suspended/, 'EIO'],
  [/read-only|read only/, 'EROFS'],
];

/** Programs that run at once. Each waits for the pool to write what it did, and most of that is one wait for all. */
const MAX_PROGRAMS = 4;

// linux/mount.h
const MS_NOATIME = 0x400;

const slots = new KeyedLock();
let next = 0;

async function run(program: string, args: readonly string[]): Promise<string> {
  next = (next + 1) % MAX_PROGRAMS;
  const { stdout, stderr, exitCode } = await slots.run(String(next), () => runProgram(program, args));
  if (exitCode === 0) return stdout;
  throw zfsError(`${program} ${args.join(' ')}`, stderr.trim() || `it ended with status ${exitCode}`);
}

/** Makes the error for a program that failed. */
export function zfsError(command: string, said: string): EngineError {
  const code = ZFS_CODES.find(([says]) => says.test(said))?.[1];
  return internal(`${command}: ${said}`, code === undefined ? {} : { code });
}

export const hostZfs: ZfsHost = {
  trouble() {
    for (const program of ['zfs', 'zpool'])
      if (!isOnPath(program)) return `the program ${program} is not installed: install zfsutils-linux`;
    return existsSync('/dev/zfs') ? undefined : 'this kernel has no ZFS, as /dev/zfs is missing: try `modprobe zfs`';
  },
  fileSystemOf,
  zfs: (...args) => run('zfs', args),
  zpool: (...args) => run('zpool', args),
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
