/**
 * Writes into the root file system of an image that is being made. Links in it are followed as a process of the image
 * would follow them, so nothing is written outside. Synchronous, for worker threads. Paths are byte strings.
 */
import { chmodSync, constants, lchownSync, linkSync, mkdirSync, type BigIntStats } from 'node:fs';
import { invalid } from '../../errors/engine-error.js';
import type { Owner } from '../../ports/id-maps.js';
import { fsPath, toText } from '../../storage/byte-path.js';
import { copyAttributes, copyInode, copyTimes } from '../../storage/copy-attributes.js';
import { removeEntry } from '../../storage/remove-entry.js';
import { statOf } from '../../storage/stat-of.js';
import { walkTree } from '../../storage/walk-tree.js';
import { closeFd } from '../../sys/files/fd.js';
import { O_PATH, openInRoot } from '../../sys/files/open-in-root.js';
import { joinPath, parentPath } from './paths.js';
import type { LeftOut, SourceFile } from './source-files.js';

const DIRECTORY = O_PATH | constants.O_DIRECTORY;

export interface Appearance {
  /** Returns the owner on this host of something that has this owner in the source. */
  readonly owner: (source: Owner) => Owner;
  /** The owner on this host of directories that are made on the way. */
  readonly directoryOwner: Owner;
  /** Returns the mode of a file whose mode is given; links are not asked for. */
  readonly mode: (mode: number, isDirectory: boolean) => number;
}

export class TargetTree {
  /** Inodes with several names that were copied, by device and number: where they are now. */
  readonly #links = new Map<string, string>();

  constructor(
    private readonly rootFd: number,
    private readonly appearance: Appearance,
  ) {}

  isDirectory(path: string): boolean {
    try {
      closeFd(openInRoot(this.rootFd, fsPath(path), DIRECTORY));
      return true;
    } catch {
      return false;
    }
  }

  /** Makes a directory and those above it, where they are missing. */
  makeDirectories(path: string): void {
    closeFd(this.#openDirectory(path));
  }

  /**
   * Copies a file or a directory to a path. Directories are merged with those that are there.
   * @param keepsTop the directory at the path itself keeps its attributes if it is there already.
   */
  copy(source: SourceFile, to: string, keepsTop: boolean, leftOut: LeftOut): void {
    if (!source.stat.isDirectory()) {
      this.#copyOne(source.at, source.stat, to, false);
      return;
    }
    const base = source.path === '/' ? '' : `${source.path.slice(1)}/`;
    this.#copyOne(source.at, source.stat, to, keepsTop);
    // Directories that are left out, until something in them is not: then they are made all the same.
    const skipped = new Map<string, BigIntStats>();
    for (const { path, at, stat } of walkTree(source.at)) {
      if (leftOut(base + path, stat.isDirectory())) {
        if (stat.isDirectory()) skipped.set(path, stat);
        continue;
      }
      if (stat.isSocket()) continue;
      for (const directory of skippedAbove(path, skipped)) {
        const above = skipped.get(directory);
        skipped.delete(directory);
        if (above) this.#copyOne(`${source.at}/${directory}`, above, joinPath(to, directory), false);
      }
      this.#copyOne(at, stat, joinPath(to, path), false);
    }
  }

  #copyOne(from: string, stat: BigIntStats, to: string, keepsPresent: boolean): void {
    if (to === '/') {
      if (!keepsPresent) this.#appear('/proc/self/fd/' + this.rootFd + '/.', from, stat);
      return;
    }
    const parent = this.#openDirectory(parentPath(to));
    try {
      const name = to.slice(to.lastIndexOf('/') + 1);
      const at = `/proc/self/fd/${parent}/${name}`;
      const present = statOf(at);
      if (stat.isDirectory()) this.#copyDirectory({ from, stat, at, present, to, keepsPresent });
      else this.#copyFile({ from, stat, at, present, parent, name, to });
    } finally {
      closeFd(parent);
    }
  }

  #copyDirectory({ from, stat, at, present, to, keepsPresent }: DirectoryCopy): void {
    if (present && !present.isDirectory()) {
      // A link to a directory stands for it at the place that was named, but not below.
      if (keepsPresent && this.isDirectory(to)) return;
      throw invalid(`cannot copy to non-directory: ${toText(to)}`, { code: 'NOT_A_DIRECTORY' });
    }
    if (!present) mkdirSync(fsPath(at), 0o755);
    if (!present || !keepsPresent) this.#appear(at, from, stat);
  }

  #copyFile({ from, stat, at, present, parent, name, to }: FileCopy): void {
    if (present?.isDirectory() === true)
      throw invalid(`cannot copy to directory: ${toText(to)}`, { code: 'IS_A_DIRECTORY' });
    if (present) removeEntry(parent, name);
    const inode = `${stat.dev}:${stat.ino}`;
    const twin = stat.nlink > 1n ? this.#links.get(inode) : undefined;
    if (twin !== undefined && this.#link(twin, at)) return;
    copyInode(from, stat, at);
    this.#dress(at, stat);
    if (stat.nlink > 1n) this.#links.set(inode, to);
  }

  #link(twin: string, at: string): boolean {
    const parent = this.#openDirectory(parentPath(twin));
    try {
      linkSync(fsPath(`/proc/self/fd/${parent}/${twin.slice(twin.lastIndexOf('/') + 1)}`), fsPath(at));
      return true;
    } catch {
      // Another source has replaced it meanwhile.
      return false;
    } finally {
      closeFd(parent);
    }
  }

  /** Gives a directory the attributes of the source. */
  #appear(at: string, from: string, stat: BigIntStats): void {
    copyAttributes(from, stat, at);
    this.#dress(at, stat);
  }

  #dress(at: string, stat: BigIntStats): void {
    const { owner, mode } = this.appearance;
    const from = { uid: Number(stat.uid), gid: Number(stat.gid) };
    const { uid, gid } = owner(from);
    const isGiven = uid !== from.uid || gid !== from.gid;
    if (isGiven) lchownSync(fsPath(at), uid, gid);
    if (stat.isSymbolicLink()) return;
    const before = Number(stat.mode & 0o7777n);
    const after = mode(before, stat.isDirectory());
    // A change of the owner takes away the bits that give a program the rights of its owner.
    if (after !== before || (isGiven && (before & 0o6000) !== 0)) chmodSync(fsPath(at), after);
    if (!stat.isDirectory()) copyTimes(stat, at);
  }

  #openDirectory(path: string): number {
    try {
      return openInRoot(this.rootFd, fsPath(path), DIRECTORY);
    } catch (error) {
      const { code } = error as NodeJS.ErrnoException;
      if (code === 'ENOTDIR')
        throw invalid(`cannot copy to non-directory: ${toText(path)}`, { code: 'NOT_A_DIRECTORY' });
      if (path === '/' || code !== 'ENOENT') throw error;
    }
    const above = this.#openDirectory(parentPath(path));
    try {
      const at = `/proc/self/fd/${above}/${path.slice(path.lastIndexOf('/') + 1)}`;
      mkdirSync(fsPath(at), 0o755);
      chmodSync(fsPath(at), 0o755);
      const { uid, gid } = this.appearance.directoryOwner;
      lchownSync(fsPath(at), uid, gid);
    } finally {
      closeFd(above);
    }
    return openInRoot(this.rootFd, fsPath(path), DIRECTORY);
  }
}

/** Returns the directories above a path that were left out, the outermost first. */
function skippedAbove(path: string, skipped: ReadonlyMap<string, BigIntStats>): string[] {
  const found: string[] = [];
  if (skipped.size === 0) return found;
  for (let slash = path.indexOf('/'); slash > 0; slash = path.indexOf('/', slash + 1)) {
    const above = path.slice(0, slash);
    if (skipped.has(above)) found.push(above);
  }
  return found;
}

interface DirectoryCopy {
  readonly from: string;
  readonly stat: BigIntStats;
  readonly at: string;
  readonly present: BigIntStats | undefined;
  readonly to: string;
  readonly keepsPresent: boolean;
}

interface FileCopy {
  readonly from: string;
  readonly stat: BigIntStats;
  readonly at: string;
  readonly present: BigIntStats | undefined;
  readonly parent: number;
  readonly name: string;
  readonly to: string;
}
