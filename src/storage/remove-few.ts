/**
 * Deletes trees without a worker thread where that can be: a container that changed little leaves some ten entries, and
 * a thread takes 30 ms of processor time and 10 MB to start. It is mostly gone when the next container is removed.
 */
import { opendir, rmdir, unlink } from 'node:fs/promises';
import { join } from 'node:path';
import type { WorkerPool } from '../workers/pool.js';
import { removeByProgram } from './remove-by-program.js';

/** Trees with more entries than that in all are a program's: so many take the main thread 5 ms, in pieces. */
const FEW = 64;
/**
 * More trees than that are a program's, too: ten as of a RUN, with three entries and a work directory each, take the
 * main thread 10 ms; by `rm` it has 1.3 ms of processor time, and `rm` 3.5. Three take as much in either way.
 */
const FEW_TREES = 2;

/** Deletes the paths and everything below them; symbolic links are not followed. Idempotent. */
export async function removeTrees(workers: WorkerPool, paths: readonly string[]): Promise<void> {
  if ((paths.length <= FEW_TREES && (await removeFew(paths))) || (await removeByProgram(paths))) return;
  // It also deletes what only calls of its own take away, and says why something stays.
  await workers.run('remove-trees', { paths });
}

/** Deletes directories. Returns false, with a part of them deleted, when they hold too much or not all of it goes. */
export async function removeFew(paths: readonly string[], most = FEW): Promise<boolean> {
  let left = most;
  const remove = async (path: string): Promise<boolean> => {
    // Most directories are empty. A link, or a place where something is mounted, is refused by another code.
    const code = await rmdir(path).catch(codeOf);
    if (code === undefined || code === 'ENOENT') return true;
    if (code !== 'ENOTEMPTY' && code !== 'EEXIST') return false;
    const entries = await first(path, left + 1);
    left -= entries.length;
    if (left < 0) return false;
    for (const { name, isDirectory } of entries) {
      const at = join(path, name);
      if (isDirectory ? !(await remove(at)) : (await unlink(at).catch(codeOf)) !== undefined) return false;
    }
    return (await rmdir(path).catch(codeOf)) === undefined;
  };
  try {
    for (const path of paths) if (!(await remove(path))) return false;
    return true;
  } catch {
    return false;
  }
}

/** Reads so many entries of a directory at most. */
async function first(path: string, most: number): Promise<{ name: string; isDirectory: boolean }[]> {
  const entries = [];
  for await (const entry of await opendir(path, { bufferSize: most })) {
    entries.push({ name: entry.name, isDirectory: entry.isDirectory() });
    if (entries.length === most) break;
  }
  return entries;
}

function codeOf(error: NodeJS.ErrnoException): string {
  return error.code ?? 'UNKNOWN';
}
