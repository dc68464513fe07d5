/** Files that writes of an earlier process have left, because it was killed before their rename. */
import { readdir, rm, stat } from 'node:fs/promises';
import { join } from 'node:path';
import { inLanes } from '../../text/in-lanes.js';
import { isTemporary } from './durable-file.js';

/**
 * Removes what was being written in these directories, and in those right below the parents, when an earlier process
 * ended. Writes of this one are left alone. Directories that are not there have nothing.
 * @throws the first errno error of the file system when all were tried.
 */
export async function removeTornWrites(directories: readonly string[], parents: readonly string[]): Promise<void> {
  const failures: unknown[] = [];
  const clear = async (directory: string): Promise<void> => {
    try {
      for (const name of await namesIn(directory)) if (isTemporary(name)) await removeOld(join(directory, name));
    } catch (error) {
      failures.push(error);
    }
  };
  await inLanes(directories, clear);
  for (const parent of parents) {
    const names = await namesIn(parent);
    await inLanes(
      names.map((name) => join(parent, name)),
      clear,
    );
  }
  if (failures.length > 0) throw failures[0];
}

async function namesIn(directory: string): Promise<string[]> {
  return (await readdir(directory).catch(unlessNone)) ?? [];
}

async function removeOld(path: string): Promise<void> {
  const found = await stat(path).catch(unlessNone);
  if (found !== undefined && found.mtimeMs < performance.timeOrigin) await rm(path, { force: true });
}

function unlessNone(error: NodeJS.ErrnoException): undefined {
  if (error.code !== 'ENOENT' && error.code !== 'ENOTDIR') throw error;
}
