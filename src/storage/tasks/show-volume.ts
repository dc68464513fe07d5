/**
 * Worker task: shows a place inside a volume at a path of the daemon, where nobody can exchange it any more. The lookup
 * may have to wait for a file server, or for a plugin that answers for the files.
 */
import { fstatSync, mkdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { internal, invalid, messageOf, notFound, unavailable } from '../../errors/engine-error.js';
import type { VolumePlace } from '../../ports/volume-place.js';
import { closeFd } from '../../sys/files/fd.js';
import { O_PATH, openInRoot, openNested } from '../../sys/files/open-in-root.js';
import { attachTree, cloneTreeOf, mapIds } from '../../sys/mount/mount-tree.js';
import { mountNow } from '../../sys/mount/mount.js';

export interface ShowVolumeInput {
  readonly place: VolumePlace;
  /** A path in the volume; '' for all of it. Links lead nowhere outside the volume. */
  readonly subpath: string;
  /** A path in a directory of the daemon. It is made as a directory or as a file. */
  readonly target: string;
  /** Descriptor of a user namespace: the files are shown as those of its users. */
  readonly usernsFd?: number;
}

// linux/mount.h
const MS_BIND = 4096;
const MS_REC = 16384;

/** @throws EngineError not-found or invalid for the subpath, internal for the volume itself. */
export function showVolume({ place, subpath, target, usernsFd }: ShowVolumeInput): void {
  const volume = openVolume(place);
  try {
    const fd = subpath === '' ? volume : openSubpath(volume, join(place.root, place.path), subpath);
    try {
      if (fstatSync(fd).isDirectory()) mkdirSync(target);
      else writeFileSync(target, '');
      if (usernsFd === undefined) mountNow(`/proc/self/fd/${fd}`, target, '', MS_BIND | MS_REC, '');
      else showMapped(fd, usernsFd, target, join(place.root, place.path));
    } finally {
      if (fd !== volume) closeFd(fd);
    }
  } finally {
    closeFd(volume);
  }
}

function showMapped(fd: number, usernsFd: number, target: string, mountpoint: string): void {
  const tree = cloneTreeOf(fd, true);
  try {
    mapIds(tree, usernsFd);
    attachTree(tree, target);
  } catch (error) {
    throw unavailable(`the file system of volume ${mountpoint} cannot map users: ${messageOf(error)}`, {
      cause: error,
    });
  } finally {
    closeFd(tree);
  }
}

function openVolume({ root, path }: VolumePlace): number {
  try {
    return openNested(root, [path === '' ? '.' : path], O_PATH);
  } catch (error) {
    throw internal(`error while mounting volume '${join(root, path)}': ${messageOf(error)}`, { cause: error });
  }
}

function openSubpath(volume: number, mountpoint: string, subpath: string): number {
  try {
    return openInRoot(volume, subpath, O_PATH);
  } catch (error) {
    const isMissing = (error as NodeJS.ErrnoException).code === 'ENOENT';
    const reason = isMissing
      ? `lstat ${join(mountpoint, missingPart(volume, subpath))}: no such file or directory`
      : messageOf(error);
    throw (isMissing ? notFound : invalid)(`cannot access path ${join(mountpoint, subpath)}: ${reason}`, {
      code: 'VOLUME_SUBPATH',
      cause: error,
    });
  }
}

/** Returns the path up to the first name that is not there, and including it. */
function missingPart(volume: number, subpath: string): string {
  const names = subpath.split('/');
  const part = (count: number): string => names.slice(0, count).join('/');
  // The search halves its range, because a client may write thousands of names.
  let [there, missing] = [0, names.length];
  while (missing - there > 1) {
    const middle = (there + missing) >> 1;
    try {
      closeFd(openInRoot(volume, part(middle), O_PATH));
      there = middle;
    } catch {
      missing = middle;
    }
  }
  return part(missing);
}
