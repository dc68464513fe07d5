/** The daemon's directory for temporary files. */
import { chmod, lstat, readdir, realpath, rm, rmdir } from 'node:fs/promises';
import { join } from 'node:path';
import { invalid, messageOf } from '../../errors/engine-error.js';
import { detachMount, mountPointsBelow } from '../mount/mount.js';
import { makeDirectories } from './make-directories.js';

/** Broken downloads outlive the run that began them, so they have a place of their own. */
const PARTIAL = 'partial';

export interface TemporaryPlaces {
  /** Directory for files of this run of the daemon alone. */
  readonly tmpDir: string;
  /** Directory for downloads that broke off. */
  readonly partialDir: string;
}

/**
 * Makes the directory and removes files that a crash may have left in it. In a shared directory (one that the operator
 * named, or the target of a link in the data root) the daemon has a directory of its own, so nobody else's files are
 * deleted and the link stays.
 * @param named is the directory that the operator named; '' means the data root.
 * @throws EngineError invalid when there can be no such directory.
 */
export async function makeTemporaryPlaces(dataRoot: string, named: string, engineId: string): Promise<TemporaryPlaces> {
  const base = named === '' ? join(dataRoot, 'tmp') : named;
  const isShared = named !== '' || (await lstat(base).catch(() => undefined))?.isSymbolicLink() === true;
  const tmpDir = isShared ? join(base, `engined-${engineId}`) : base;
  try {
    await makeDirectories(tmpDir, { mode: 0o700 });
    await chmod(tmpDir, 0o700);
    await empty(tmpDir);
  } catch (error) {
    throw invalid(`directory of temporary files ${tmpDir}: ${messageOf(error)}`, { cause: error });
  }
  return { tmpDir, partialDir: named === '' ? join(dataRoot, 'image', 'partial') : join(tmpDir, PARTIAL) };
}

/** Removes the directory again, but keeps downloads that a later run can go on with. */
export async function removeTemporaryFiles({ tmpDir }: TemporaryPlaces): Promise<void> {
  await empty(tmpDir);
  for (const path of [join(tmpDir, PARTIAL), tmpDir]) await rmdir(path).catch(ignoreUnlessUnexpected);
}

/** Builds mount layers here; a daemon that was killed has left such a mount, below which nothing may be removed. */
async function empty(dir: string): Promise<void> {
  const place = await realpath(dir).catch(() => dir);
  for (const point of (await mountPointsBelow(place)).toReversed()) await detachMount(point);
  const names = (await readdir(dir)).filter((name) => name !== PARTIAL);
  await Promise.all(names.map((name) => rm(join(dir, name), { recursive: true, force: true })));
}

/** A directory that is not empty stays, and one that was never made cannot be removed. */
function ignoreUnlessUnexpected(error: NodeJS.ErrnoException): void {
  if (error.code !== 'ENOTEMPTY' && error.code !== 'ENOENT') throw error;
}
