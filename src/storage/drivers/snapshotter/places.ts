/**
 * Names in the directory of the store, and in those of layers and containers, besides those of the store. All are links
 * that lead nowhere or to a directory of the supervisor; their text counts. A link and not a file: it is part of the
 * metadata of its directory, so a crash cannot leave it empty.
 */
import { readlinkSync } from 'node:fs';
import { rename, rm, symlink } from 'node:fs/promises';
import { join } from 'node:path';

/** In the directory of the store: the snapshotter that has its files. */
export const SNAPSHOTTER_LINK = 'snapshotter';

/** In the directory of the store: the lease that holds its snapshots. */
export const LEASE_LINK = 'lease';

/** In the directory of the store: its own path, by which it is noticed when the data root was moved. */
export const ROOT_LINK = 'root';

/** In the directory of the store: which directory it is (copies.ts), by which it is noticed when it was copied. */
export const IDENTITY_LINK = 'identity';

/**
 * Directory in that of the store, with the links of a snapshot without files. What has no image stands on it, and with
 * it the form of the snapshots was found out.
 */
export const BASE = 'base';

/** In `base`: the form of the snapshots. */
export const FORM_LINK = 'form';

/** In the directory of a layer or a container: the name of its snapshot. */
export const SNAPSHOT_LINK = 'snapshot';

/** In the same: the path of the directory with the files of the snapshot. */
export const FILES_LINK = 'files';

/** In the directory of a container: where its root file system is mounted. */
export const MERGED = 'merged';

/** Returns the text of a link; undefined when there is none. */
export function textOf(directory: string, link: string): string | undefined {
  try {
    return readlinkSync(join(directory, link));
  } catch (error) {
    const { code } = error as NodeJS.ErrnoException;
    if (code === 'ENOENT' || code === 'ENOTDIR' || code === 'EINVAL') return undefined;
    throw error;
  }
}

/** Sets the text of a link, at once or not at all. */
export async function setText(directory: string, link: string, text: string): Promise<void> {
  const next = join(directory, `${link}.new`);
  await rm(next, { force: true });
  await symlink(text, next);
  await rename(next, join(directory, link));
}
