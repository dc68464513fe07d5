/** Directories that only one daemon may use. */
import { constants } from 'node:fs';
import { mkdir, open, readFile, realpath, stat } from 'node:fs/promises';
import { conflict, invalid, isEngineError, messageOf } from '../errors/engine-error.js';
import { libc } from './libc.js';

export interface LockedDirectory {
  /** Without symbolic links. */
  readonly path: string;
  release(): Promise<void>;
}

// flock(2): of the open file, so that it goes with the process, however that ends.
const LOCK_EX = 2;
const LOCK_NB = 4;
const flock = libc.checked<[fd: number, operation: number]>('flock', 'int flock(int fd, int operation)');

/**
 * Makes the directory if there is none, and locks it until `release` or the end of the process.
 * @param option the setting that names it, for messages.
 * @throws EngineError conflict when another process has it, invalid when it cannot be a directory.
 */
export async function lockDirectory(option: string, given: string): Promise<LockedDirectory> {
  const path = await makeDirectory(option, given);
  const handle = await open(path, constants.O_RDONLY | constants.O_DIRECTORY);
  try {
    flock(handle.fd, LOCK_EX | LOCK_NB);
  } catch (error) {
    await handle.close();
    if (!isEngineError(error) || error.code !== 'EAGAIN') throw error;
    const holder = await holderOf(path);
    throw conflict(`${option} ${given} is in use by ${holder === undefined ? 'another daemon' : `process ${holder}`}: stop it, or give this daemon a ${option} of its own`, { code: 'DIRECTORY_IN_USE' });
  }
  return { path, release: () => handle.close() };
}

async function makeDirectory(option: string, path: string): Promise<string> {
  try {
    await mkdir(path, { recursive: true, mode: 0o711 });
    return await realpath(path);
  } catch (error) {
    throw invalid(`${option} ${path}: ${messageOf(error)}`, { cause: error });
  }
}

/** From /proc/locks, whose lines end with `FLOCK  ADVISORY  WRITE <pid> <major>:<minor>:<inode> 0 EOF`. */
async function holderOf(path: string): Promise<string | undefined> {
  const [locks, { ino }] = await Promise.all([readFile('/proc/locks', 'utf8').catch(() => ''), stat(path)]);
  return new RegExp(`FLOCK +ADVISORY +WRITE +(\\d+) +[0-9a-f]+:[0-9a-f]+:${ino} `).exec(locks)?.[1];
}
