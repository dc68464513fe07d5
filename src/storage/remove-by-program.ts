/**
 * Deletes large trees by the program `rm`, which every system has: it takes 2 MB where a worker thread takes 12, and
 * images are often removed just before others are loaded or pulled.
 */
import { lstat } from 'node:fs/promises';
import { runProgram } from '../sys/process/spawn.js';

/** A command line has room for far more. */
const PATHS_AT_ONCE = 500;

/**
 * Deletes the paths and everything below them; symbolic links are not followed. Returns false when not all of it went,
 * for any reason.
 */
export async function removeByProgram(paths: readonly string[]): Promise<boolean> {
  for (let at = 0; at < paths.length; at += PATHS_AT_ONCE) {
    const some = paths.slice(at, at + PATHS_AT_ONCE);
    try {
      await runProgram('rm', ['-rf', '--', ...some]);
    } catch {
      return false; // There is no such program, or no room for one more.
    }
    for (const path of some) if (!(await isGone(path))) return false;
  }
  return true;
}

async function isGone(path: string): Promise<boolean> {
  return lstat(path).then(
    () => false,
    (error: NodeJS.ErrnoException) => error.code === 'ENOENT',
  );
}
