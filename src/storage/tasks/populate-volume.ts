/** Worker task: copies into a new volume what the image has in its place. */
import { closeSync, constants, linkSync, mkdirSync, openSync, readdirSync, type BigIntStats } from 'node:fs';
import { isEngineError } from '../../errors/engine-error.js';
import type { VolumePlace } from '../../ports/volume-place.js';
import { closeFd } from '../../sys/files/fd.js';
import { O_PATH, openInRoot, openNested } from '../../sys/files/open-in-root.js';
import { fsPath, toBytePath } from '../byte-path.js';
import { copyAttributes, copyInode } from '../copy-attributes.js';
import { resolveMerged } from '../layers/merged-view.js';
import { storageError } from '../storage-error.js';
import { walkTree } from '../walk-tree.js';

const OPEN_DIRECTORY = constants.O_RDONLY | constants.O_DIRECTORY | constants.O_NOFOLLOW;

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
 * Copies with all attributes and hard links, whatever a container that has the volume does meanwhile. Nothing happens
 * when the volume holds something or has no such directory, or when the image has none.
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
    populate(source, fd);
  } finally {
    closeFd(fd);
  }
}

function populate(
  { rootfs, destination }: Pick<PopulateVolumeInput, 'rootfs' | 'destination'>,
  volumeFd: number,
): void {
  if (readdirSync(`/proc/self/fd/${volumeFd}`).length > 0) return;
  const source = resolveMerged([toBytePath(rootfs)], toBytePath(destination), true)?.entry;
  if (!source?.parts) return;
  try {
    copyTree(source.at, volumeFd);
    copyAttributes(source.at, source.stat, placeOf(volumeFd));
  } catch (error) {
    throw storageError(error, `copying ${destination} of the image into the volume`);
  }
}

function copyTree(from: string, volumeFd: number): void {
  /** Paths in the volume. */
  const firstNames = new Map<bigint, string>();
  const directories = new Directories(volumeFd);
  try {
    for (const { path, at, stat } of walkTree(from)) {
      const target = directories.nameOf(path);
      const first = firstNames.get(stat.ino);
      if (stat.isDirectory()) directories.make(path, target, { at: `${from}/${path}`, stat });
      else if (first !== undefined) linkFirst(volumeFd, first, target);
      else if (!stat.isSocket()) {
        copyInode(at, stat, target);
        if (stat.nlink > 1n) firstNames.set(stat.ino, path);
      }
    }
    directories.finish();
  } finally {
    directories.close();
  }
}

interface Directory {
  readonly path: string;
  readonly fd: number;
  readonly source: { readonly at: string; readonly stat: BigIntStats };
}

/**
 * The directories that lead to the place of the last entry, open: a container that has the volume already may put links
 * in their places, which would lead out of it.
 */
class Directories {
  readonly #open: Directory[] = [];

  constructor(private readonly volumeFd: number) {}

  /** Returns the name of an entry in its directory, which was made before. */
  nameOf(path: string): string {
    const directory = parentOf(path);
    while ((this.#open.at(-1)?.path ?? '') !== directory) this.#leave();
    return `/proc/self/fd/${this.#open.at(-1)?.fd ?? this.volumeFd}/${path.slice(path.lastIndexOf('/') + 1)}`;
  }

  /** @throws an errno error when something else has taken the name. */
  make(path: string, target: string, source: Directory['source']): void {
    mkdirSync(fsPath(target), 0o700);
    this.#open.push({ path, fd: openSync(fsPath(target), OPEN_DIRECTORY), source });
  }

  /** Completes all of them. */
  finish(): void {
    while (this.#open.length > 0) this.#leave();
  }

  /** Frees what is open. Idempotent. */
  close(): void {
    for (const { fd } of this.#open.splice(0)) closeSync(fd);
  }

  /** Sets the attributes, last because making files in a directory changes its times. */
  #leave(): void {
    const directory = this.#open.at(-1);
    if (!directory) return;
    const { fd, source } = directory;
    copyAttributes(source.at, source.stat, placeOf(fd));
    this.#open.pop();
    closeSync(fd);
  }
}

/** Makes another name of a file of the volume. */
function linkFirst(volumeFd: number, first: string, target: string): void {
  const parent = openInRoot(volumeFd, fsPath(parentOf(first) || '.'), O_PATH | constants.O_DIRECTORY);
  try {
    linkSync(fsPath(`/proc/self/fd/${parent}/${first.slice(first.lastIndexOf('/') + 1)}`), fsPath(target));
  } finally {
    closeFd(parent);
  }
}

/** Returns the path of an open directory itself, and not of the link that stands for it. */
function placeOf(fd: number): string {
  return `/proc/self/fd/${fd}/.`;
}

function parentOf(path: string): string {
  return path.slice(0, Math.max(path.lastIndexOf('/'), 0));
}
