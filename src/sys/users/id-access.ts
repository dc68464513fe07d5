/** Which directories the root of containers may pass through, who is nobody special on the host. */
import { chmod, chown, stat } from 'node:fs/promises';
import { dirname } from 'node:path';
import { invalid } from '../../errors/engine-error.js';
import type { Owner } from '../../ports/id-maps.js';

const GROUP_SEARCH = 0o010;
const OTHERS_SEARCH = 0o001;

/**
 * Lets the group of `owner` pass through a directory of ours that not everybody can pass through. For root nothing is
 * to be done.
 */
export async function letPass(directory: string, { uid, gid }: Owner): Promise<void> {
  if (uid === 0 && gid === 0) return;
  const { mode } = await stat(directory);
  if (mode & OTHERS_SEARCH) return;
  await chown(directory, 0, gid);
  await chmod(directory, (mode & 0o7777) | GROUP_SEARCH);
}

/** Tells whether `owner` can pass through a directory. @throws Error when it does not exist. */
export async function isPassable(directory: string, owner: Owner): Promise<boolean> {
  const { uid, gid, mode } = await stat(directory);
  const search = uid === owner.uid ? 0o100 : gid === owner.gid ? GROUP_SEARCH : OTHERS_SEARCH;
  return (mode & search) !== 0;
}

/**
 * @param option names the setting that `path` comes from.
 * @throws EngineError invalid that names the first directory above `path` that `owner` cannot pass through.
 */
export async function checkPassage(path: string, owner: Owner, option = 'data-root'): Promise<void> {
  for (let directory = dirname(path); ; directory = dirname(directory)) {
    if (!(await isPassable(directory, owner)))
      throw invalid(
        `the remapped root of containers (${owner.uid}:${owner.gid}) cannot pass through ${directory}: ` +
          `give the directory the mode o+x, or choose another ${option}`,
      );
    if (directory === '/') return;
  }
}
