/**
 * Copies of a data root. A copy has the lease of its original. Where both are served by one supervisor, each would let
 * go and overwrite the snapshots of the other, so the copy does not start.
 */
import { realpath, stat } from 'node:fs/promises';
import { dirname, join, sep } from 'node:path';
import { unavailable } from '../../../errors/engine-error.js';
import { BASE, FILES_LINK, IDENTITY_LINK, LEASE_LINK, ROOT_LINK, setText, SNAPSHOT_LINK, textOf } from './places.js';
import { filesOf } from './form.js';
import type { HeldSnapshots } from './held-snapshots.js';

/**
 * Refuses a store whose directory was copied from another one, unless the supervisor has its own files in this data
 * root and so was copied too. Notes for later starts which directory this is.
 * @throws EngineError unavailable; the message says what confirms that the directory was moved.
 */
export async function refuseCopy(root: string, held: HeldSnapshots, there: ReadonlySet<string>): Promise<void> {
  const identity = await identityOf(root);
  const known = textOf(root, IDENTITY_LINK);
  const place = textOf(root, ROOT_LINK);
  const isCopy = (known !== undefined && known !== identity) || (await isAnother(place, root));
  if (isCopy && !(await hasItsFilesBeside(root, held, there)))
    throw unavailable(
      `${root} is a copy of ${place ?? 'another directory'}, and the supervisor has one lease, ${held.lease}, for ` +
        'the snapshots of both: start the daemon with the original, or delete the copy to give up its images and ' +
        `containers. If the original is gone, delete the link ${join(root, IDENTITY_LINK)} to go on with this one`,
      { code: 'DATA_ROOT_COPIED' },
    );
  if (known !== identity) await setText(root, IDENTITY_LINK, identity);
}

/** Returns what a directory keeps when it is renamed, and no copy has: its inode and the time when that was made. */
async function identityOf(directory: string): Promise<string> {
  const { ino, birthtimeNs } = await stat(directory, { bigint: true });
  return `${ino}-${birthtimeNs}`;
}

/** Tells whether the store is also where it was before, as in a snapshot of a file system. */
async function isAnother(place: string | undefined, root: string): Promise<boolean> {
  if (place === undefined || place === root || textOf(place, LEASE_LINK) !== textOf(root, LEASE_LINK)) return false;
  const [there, here] = await Promise.all([place, root].map((path) => stat(path, { bigint: true })));
  return there?.dev !== here?.dev || there?.ino !== here?.ino;
}

/** Tells whether the files of snapshots are in the same data root. */
async function hasItsFilesBeside(root: string, held: HeldSnapshots, there: ReadonlySet<string>): Promise<boolean> {
  const base = textOf(join(root, BASE), SNAPSHOT_LINK) ?? '';
  const files = there.has(base) ? filesOf(await held.look(base)) : textOf(join(root, BASE), FILES_LINK);
  if (files === undefined) return true;
  const real = await realpath(files).catch(() => files);
  return real.startsWith(dirname(root) + sep);
}
