/** Removal in a tree that a container may be changing at this moment. Synchronous, for worker threads. */
import { constants, readdirSync, rmdirSync, unlinkSync } from 'node:fs';
import { internal, invalid } from '../errors/engine-error.js';
import { closeFd } from '../sys/files/fd.js';
import { O_PATH, openUnmounted } from '../sys/files/open-in-root.js';
import { fsPath, toText } from './byte-path.js';
import { statOf } from './stat-of.js';

/** Each level of a tree takes a descriptor while it is removed, and a container makes as many as it likes. */
const MAX_LEVELS = 2048;

/**
 * Removes what has a name (a byte string) in an open directory, a directory with all that is in it. Only names in open
 * directories are removed, so links that take the place of directories lead nowhere. Idempotent.
 * @throws EngineError code EBUSY when something is mounted there: the kernel would take a mount of another namespace
 * away from all who have it; invalid, code ENAMETOOLONG, for a tree that is too deep.
 */
export function removeEntry(directoryFd: number, name: string): void {
  removeAt(directoryFd, name, 1);
}

function removeAt(directoryFd: number, name: string, level: number): void {
  const at = `/proc/self/fd/${directoryFd}/${name}`;
  const stat = statOf(at);
  if (!stat) return;
  if (level > MAX_LEVELS)
    throw invalid(`there are more than ${MAX_LEVELS} directories in each other`, { code: 'ENAMETOOLONG' });
  const flags = stat.isDirectory() ? constants.O_RDONLY | constants.O_DIRECTORY : O_PATH;
  const fd = openHere(directoryFd, name, flags);
  try {
    if (!stat.isDirectory()) {
      unlinkSync(fsPath(at));
      return;
    }
    for (const child of readdirSync(`/proc/self/fd/${fd}`, 'latin1')) removeAt(fd, child, level + 1);
  } finally {
    closeFd(fd);
  }
  rmdirSync(fsPath(at));
}

function openHere(directoryFd: number, name: string, flags: number): number {
  try {
    return openUnmounted(directoryFd, fsPath(name), flags);
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'EXDEV') throw error;
    throw internal(`${JSON.stringify(toText(name))} is a mount point: device or resource busy`, {
      code: 'EBUSY',
      cause: error,
    });
  }
}
