/** Whether mounts can show the files of a directory, below an overlay, as those of other users. */
import { release } from 'node:os';
import { messageOf } from '../../errors/engine-error.js';
import type { IdMaps } from '../../ports/id-maps.js';
import { isAtLeast, parseVersion, type Version } from '../../text/version.js';
import { closeFd } from '../files/fd.js';
import { withUserNamespace } from '../users/kept-namespaces.js';
import { cloneTree, mapIds } from './mount-tree.js';

/** Before it, overlayfs does not take such mounts as its lower directories. */
const OLDEST: Version = [5, 19];

/**
 * Tries whether this host has a user namespace with these maps, and the file system of the directory takes them.
 * Returns what is missing; undefined when nothing is.
 */
export async function whyNotShown(directory: string, maps: IdMaps): Promise<string | undefined> {
  if (!isAtLeast(parseVersion(release()), OLDEST))
    return `idmapped mounts below overlayfs need Linux ${OLDEST.join('.')}`;
  try {
    await withUserNamespace(maps, async (usernsFd) => tryMapping(directory, usernsFd));
    return undefined;
  } catch (error) {
    return `idmapped mounts cannot be had at ${directory}: ${messageOf(error)}`;
  }
}

/** The copy that is tried is attached nowhere, and gone when it is closed. */
function tryMapping(directory: string, usernsFd: number): void {
  const tree = cloneTree(directory, false);
  try {
    mapIds(tree, usernsFd, true);
  } finally {
    closeFd(tree);
  }
}
