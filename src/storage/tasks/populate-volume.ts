/** Worker task: copies into a new volume what the image has in its place. */
import { constants, linkSync, mkdirSync, readdirSync, type BigIntStats } from 'node:fs';
import { isEngineError } from '../../errors/engine-error.js';
import type { VolumePlace } from '../../ports/volume-place.js';
import { closeFd } from '../../sys/files/fd.js';
import { openNested } from '../../sys/files/open-in-root.js';
import { fsPath, toBytePath } from '../byte-path.js';
import { copyAttributes, copyInode } from '../copy-attributes.js';
import { resolveMerged } from '../layers/merged-view.js';
import { storageError } from '../storage-error.js';
import { walkTree } from '../walk-tree.js';

export interface PopulateVolumeInput {
  /** Root file system of a container that is not running. */
  readonly rootfs: string;
  /** Where the volume will be mounted. Links in it are resolved inside the root file system. */
  readonly destination: string;
  readonly volume: VolumePlace;
  /** The directory of the volume that is filled; '' for all of it. Links in the volume lead nowhere outside. */
  readonly subpath: string;
}

/**
 * Copies with all attributes and hard links. Nothing happens when the volume holds something or has no such directory,
 * or when the image has none.
 */
export function populateVolume({ volume: { root, path }, subpath, ...source }: PopulateVolumeInput): void {
  let fd: number;
  try {
    fd = openNested(root, [path || '.', subpath || '.'], constants.O_RDONLY | constants.O_DIRECTORY);
  } catch (error) {
    if (isEngineError(error) && ['ENOENT', 'ENOTDIR'].includes(error.code ?? '')) return;
    throw error;
  }
  try {
    populate(source, `/proc/self/fd/${fd}/.`);
  } finally {
    closeFd(fd);
  }
}

function populate(
  { rootfs, destination }: Pick<PopulateVolumeInput, 'rootfs' | 'destination'>,
  mountpoint: string,
): void {
  if (readdirSync(mountpoint).length > 0) return;
  const source = resolveMerged([toBytePath(rootfs)], toBytePath(destination), true)?.entry;
  if (!source?.parts) return;
  try {
    copyTree(source.at, toBytePath(mountpoint));
    copyAttributes(source.at, source.stat, toBytePath(mountpoint));
  } catch (error) {
    throw storageError(error, `copying ${destination} of the image into the volume`);
  }
}

function copyTree(from: string, to: string): void {
  const firstNames = new Map<bigint, string>();
  const directories: { readonly target: string; readonly source: string; readonly stat: BigIntStats }[] = [];
  for (const { path, at, stat } of walkTree(from)) {
    const target = `${to}/${path}`;
    const first = firstNames.get(stat.ino);
    if (stat.isDirectory()) {
      mkdirSync(fsPath(target), 0o700);
      directories.push({ target, source: `${from}/${path}`, stat });
    } else if (first !== undefined) {
      linkSync(fsPath(first), fsPath(target));
    } else if (!stat.isSocket()) {
      copyInode(at, stat, target);
      if (stat.nlink > 1n) firstNames.set(stat.ino, target);
    }
  }
  // Making files in a directory changed its times.
  for (const { target, source, stat } of directories) copyAttributes(source, stat, target);
}
