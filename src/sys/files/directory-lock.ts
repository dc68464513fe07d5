/** Directories that only one daemon may use. */
import { constants } from 'node:fs';
import { open, readFile, realpath, stat } from 'node:fs/promises';
import { conflict, invalid, messageOf } from '../../errors/engine-error.js';
import { tryLock } from './file-lock.js';
import { makeDirectories } from './make-directories.js';

export interface LockedDirectory {
  /** The path without symbolic links. */
  readonly path: string;
  release(): Promise<void>;
}

/**
 * Makes the directory if there is none, and locks it until `release` or the end of the process.
 * @param option the setting that names it, for messages.
 * @throws EngineError conflict when another process has it, invalid when it cannot be a directory.
 */
export async function lockDirectory(option: string, given: string): Promise<LockedDirectory> {
  const path = await makeDirectory(option, given);
  const handle = await open(path, constants.O_RDONLY | constants.O_DIRECTORY);
  if (!tryLock(handle.fd)) {
    await handle.close();
    const holder = await holderOf(path);
    throw conflict(
      `${option} ${given} is in use by ${holder === undefined ? 'another daemon' : `process ${holder}`}: ` +
        `stop it, or give this daemon a ${option} of its own`,
      { code: 'DIRECTORY_IN_USE' },
    );
  }
  return { path, release: () => handle.close() };
}

async function makeDirectory(option: string, path: string): Promise<string> {
  try {
    // In the data root are files of containers, some of them with the setuid bit of root: others may not pass.
    await makeDirectories(path, { mode: option === 'data-root' ? 0o710 : 0o711 });
    return await realpath(path);
  } catch (error) {
    throw invalid(`${option} ${path}: ${messageOf(error)}`, { cause: error });
  }
}

/**
 * Returns the process that holds the lock, from /proc/locks, whose lines end with `FLOCK  ADVISORY  WRITE <pid>
 * <major>:<minor>:<inode> 0 EOF`.
 */
async function holderOf(path: string): Promise<string | undefined> {
  const [locks, { ino }] = await Promise.all([readFile('/proc/locks', 'utf8').catch(() => ''), stat(path)]);
  return new RegExp(`FLOCK +ADVISORY +WRITE +(\\d+) +[0-9a-f]+:[0-9a-f]+:${ino} `).exec(locks)?.[1];
}
