/**
 * Writes into the root file system of an image that is being made. Links in it are followed as a process of the image
 * would follow them, so nothing is written outside. Synchronous, for worker threads. Paths are byte strings.
 */
import { chmodSync, constants, fstatSync, lchownSync, linkSync, mkdirSync, type BigIntStats } from 'node:fs';
import { invalid } from '../../errors/engine-error.js';
import type { Owner } from '../../ports/id-maps.js';
import { fsPath, toText } from '../../storage/byte-path.js';
import type { FoundPath } from '../../storage/container-path.js';
import {
  copyAttributes,
  copyInode,
  copySmallFile,
  copyTimes,
  hasContentXattrs,
  splitNs,
} from '../../storage/copy-attributes.js';
import { isApart, isSmall, type Look, readSmall, SMALL_BYTES } from '../../storage/copy-regular.js';
import { removeEntry } from '../../storage/remove-entry.js';
import { statOf } from '../../storage/stat-of.js';
import type { GrowingTar } from '../../storage/tar/growing-tar.js';
import { walkTree } from '../../storage/walk-tree.js';
import { closeFd } from '../../sys/files/fd.js';
import { O_PATH, openInRoot } from '../../sys/files/open-in-root.js';
import { fileOnTheWay, notDirectory } from './copy-errors.js';
import type { FileLine } from './file-line.js';
import { directoriesAbove, joinPath, parentPath } from './paths.js';
import type { LeftOut, SourceFile } from './source-files.js';
import { isDirectoryAt, isFileAt, resolveTarget } from './target-paths.js';

const DIRECTORY = O_PATH | constants.O_DIRECTORY;
const isPlain = (fd: number): boolean => !hasContentXattrs(fd);

export interface Appearance {
  /** Returns the owner on this host of something that has this owner in the source. */
  readonly owner: (source: Owner) => Owner;
  /** The owner on this host of directories that are made on the way. */
  readonly directoryOwner: Owner;
  /** The mode of directories that are made on the way. */
  readonly directoryMode: number;
  /** Returns the mode of a file whose mode is given; links are not asked for. */
  readonly mode: (mode: number, isDirectory: boolean) => number;
}

/** The builders differ in these. */
export interface CopyRules {
  /** A file takes the place of a directory, and a directory that of a file, where both are in a tree. */
  readonly replaces: boolean;
  /** The directory that is named as destination gets the time of the source. */
  readonly keepsTopTime: boolean;
  /** Links, devices and pipes with several names have them there, too; else only regular files do. */
  readonly keepsAllNames: boolean;
  /** Programs lose the right to act as their owner, as they do when somebody else becomes it. */
  readonly dropsSetuid: boolean;
}

/** The layer that gets what is made, for a copy that is the only one into it. */
export interface TargetLayer {
  /** The root of its difference. What is made in a directory that nothing below has is made there directly. */
  readonly fd: number;
  /** Where it is: a byte string. */
  readonly root: string;
  readonly device: bigint;
  readonly tar: GrowingTar;
  /** Writes small files in another thread. */
  readonly line: FileLine | undefined;
}

export class TargetTree {
  /** Inodes of the source with several names, by device and number: where they are now. */
  readonly #links = new Map<string, string>();
  /** Directories that this copy has made: nothing is in them but what it puts there. */
  readonly #fresh = new Set<string>();
  /** Directories that are in the layer alone: what is made in them need not go through the mount. */
  readonly #own = new Set<string>();
  /** The directory of the last file, since most files have the same one as the file before. */
  #current: { readonly path: string; readonly fd: number } | undefined;
  /** Directories whose times are set when everything in them is there, the outermost first. */
  readonly #times: { readonly to: string; readonly stat: BigIntStats }[] = [];

  constructor(
    private readonly rootFd: number,
    private readonly appearance: Appearance,
    private readonly rules: CopyRules,
    private readonly layer?: TargetLayer,
  ) {}

  /** @throws EngineError invalid for links that lead to each other. */
  resolve(path: string): string {
    return resolveTarget(this.rootFd, path);
  }

  isDirectory(path: string): boolean {
    return isDirectoryAt(this.rootFd, path);
  }

  /** Makes a directory and those above it, where they are missing. */
  makeDirectories(path: string): void {
    closeFd(this.#openDirectory(path));
  }

  /** Makes a directory as it is in the source, without what is in it. One that is there gets its mode alone. */
  copyDirectoryAlone({ at, stat }: Pick<FoundPath, 'at' | 'stat'>, to: string): void {
    const parent = this.#openDirectory(parentPath(to));
    try {
      const place = `/proc/self/fd/${parent}/${to.slice(to.lastIndexOf('/') + 1)}`;
      const present = statOf(place);
      if (present && !present.isDirectory()) throw notDirectory(to);
      if (present) {
        chmodSync(fsPath(place), Number(stat.mode & 0o7777n));
        return;
      }
      mkdirSync(fsPath(place), 0o755);
      this.#own.add(to);
      this.#appear(place, at, stat);
    } finally {
      closeFd(parent);
    }
  }

  /**
   * Copies a file or a directory to a path. Directories are merged with those that are there.
   * @param isContent the content of the directory is copied: the one at the path keeps its attributes, and is made as
   * those on the way are.
   */
  copy(source: SourceFile, to: string, isContent: boolean, leftOut: LeftOut): void {
    this.#links.clear();
    this.#fresh.clear();
    try {
      this.#copyTree(source, to, isContent, leftOut);
    } finally {
      this.#leave();
    }
  }

  #copyTree(source: SourceFile, to: string, isContent: boolean, leftOut: LeftOut): void {
    if (!source.stat.isDirectory()) {
      this.#copyOne(source.at, source.stat, to);
      return;
    }
    if (isContent) {
      if (!this.rules.replaces && isFileAt(this.rootFd, to)) throw notDirectory(to);
      this.makeDirectories(parentPath(to));
      this.makeDirectories(to);
      if (this.rules.keepsTopTime) this.#keepTime(to, source.stat);
    } else this.#copyOne(source.at, source.stat, to);
    this.#copyContent(source, to, leftOut);
    this.#drain();
    for (const { to: directory, stat } of this.#times.splice(0).toReversed()) {
      const fd = this.#openDirectory(directory);
      copyTimes(stat, `/proc/self/fd/${fd}/.`);
      closeFd(fd);
    }
  }

  #copyContent(source: SourceFile, to: string, leftOut: LeftOut): void {
    const base = source.path === '/' ? '' : `${source.path.slice(1)}/`;
    // Directories that are left out, until something in them is not: then they are made all the same.
    const skipped = new Map<string, BigIntStats>();
    for (const { path, at, stat } of walkTree(source.at)) {
      if (leftOut(base + path, stat.isDirectory())) {
        if (stat.isDirectory()) skipped.set(path, stat);
        continue;
      }
      if (stat.isSocket()) continue;
      for (const directory of directoriesAbove(path, skipped)) {
        const above = skipped.get(directory);
        skipped.delete(directory);
        const [from, keepsTime] = [`${source.at}/${directory}`, leftOut.keepsTime?.(base + directory)];
        if (above) this.#copyOne(from, above, joinPath(to, directory), keepsTime);
      }
      this.#copyOne(at, stat, joinPath(to, path));
    }
  }

  /** A directory gets its time when everything in it is there. */
  #keepTime(to: string, stat: BigIntStats): void {
    this.#times.push({ to, stat });
    this.layer?.tar.willHaveTime(to.slice(1), stat.mtimeNs);
  }

  #copyOne(from: string, stat: BigIntStats, to: string, keepsTime = true): void {
    if (to === '/') {
      this.#appear(`/proc/self/fd/${this.rootFd}/.`, from, stat);
      return;
    }
    const directory = parentPath(to);
    const parent = this.#enter(directory);
    const name = to.slice(to.lastIndexOf('/') + 1);
    const at = `/proc/self/fd/${parent}/${name}`;
    const present = this.#fresh.has(directory) ? undefined : statOf(at);
    const place = { from, stat, at, present, parent, name, to };
    if (stat.isDirectory()) this.#copyDirectory(place, keepsTime);
    else this.#copyFile(place);
  }

  /** Opens a directory until another one is entered. */
  #enter(path: string): number {
    if (this.#current?.path !== path) {
      this.#leave();
      this.#current = { path, fd: this.#openDirectory(path) };
    }
    return this.#current.fd;
  }

  #leave(): void {
    if (this.#current !== undefined) closeFd(this.#current.fd);
    this.#current = undefined;
  }

  #copyDirectory({ from, stat, at, present, parent, name, to }: Place, keepsTime: boolean): void {
    let isThere = present !== undefined;
    if (present && !present.isDirectory()) {
      if (!this.rules.replaces) throw notDirectory(to);
      removeEntry(parent, name);
      isThere = false;
    }
    if (!isThere) {
      mkdirSync(fsPath(at), 0o755);
      this.#fresh.add(to);
      this.#own.add(to);
    }
    this.#appear(at, from, stat);
    if (keepsTime) this.#keepTime(to, stat);
    this.layer?.tar.entry(to.slice(1));
  }

  #copyFile({ from, stat, at, present, parent, name, to }: Place): void {
    if (present?.isDirectory() === true && !this.rules.replaces)
      throw invalid(`cannot replace to directory ${toText(to)} with file`, { code: 'IS_A_DIRECTORY' });
    if (present) removeEntry(parent, name);
    if (stat.nlink > 1n && (stat.isFile() || this.rules.keepsAllNames)) this.#copyShared({ from, stat, at, to });
    else this.#copyContents({ from, stat, at, to });
  }

  /** Copies a file of which there may be other names. */
  #copyShared(file: Pick<Place, 'from' | 'stat' | 'at' | 'to'>): void {
    this.layer?.tar.giveUp();
    const inode = `${file.stat.dev}:${file.stat.ino}`;
    const twin = this.#links.get(inode);
    if (twin !== undefined && this.#link(twin, file.to)) return;
    this.#copyContents(file);
    this.#links.set(inode, file.to);
  }

  #copyContents({ from, stat, at, to }: Pick<Place, 'from' | 'stat' | 'at' | 'to'>): void {
    if (this.#putInLine(from, stat, to)) return;
    const tar = this.layer?.tar;
    let isTaken = false;
    const isSmall = copySmallFile(from, stat, at, this.#lookOf(stat), ({ fd, content, hasXattrs }) => {
      if (hasXattrs || tar === undefined) return;
      tar.file(to.slice(1), fstatSync(fd, { bigint: true }), content);
      isTaken = true;
    });
    if (!isSmall) {
      copyInode(from, stat, at);
      this.#dress(at, stat);
    }
    if (!isTaken) tar?.entry(to.slice(1));
  }

  /** Lets another thread write a small file, if there is one and the file system does not share the content. */
  #putInLine(from: string, stat: BigIntStats, to: string): boolean {
    const { layer } = this;
    if (layer?.line?.isManned() !== true || !isSmall(stat) || stat.nlink > 1n) return false;
    if (!this.#own.has(parentPath(to)) || !isApart(stat.dev, layer.device)) return false;
    const { uid, gid, mode } = this.#lookOf(stat);
    const { mtimeNs } = stat;
    // Each name by itself: to spread an object takes several times as long, and there are many files.
    const file = { path: layer.root + to, uid, gid, mode, time: splitNs(mtimeNs) };
    const content = layer.line.put(file, SMALL_BYTES + 1, (place) => readSmall(from, place, isPlain));
    if (content === undefined) return false;
    layer.tar.file(to.slice(1), { uid, gid, mode, mtimeNs }, content);
    return true;
  }

  /** Waits until all files are there. */
  #drain(): void {
    if (this.layer?.line?.drain() === false) this.layer.tar.giveUp();
  }

  /** Both names go through the mount: what is made in the layer itself is in another file system for the kernel. */
  #link(twin: string, to: string): boolean {
    const fds: number[] = [];
    const place = (path: string): ReturnType<typeof fsPath> => {
      fds.push(openInRoot(this.rootFd, fsPath(parentPath(path)), DIRECTORY));
      return fsPath(`/proc/self/fd/${fds.at(-1)}/${path.slice(path.lastIndexOf('/') + 1)}`);
    };
    try {
      linkSync(place(twin), place(to));
      return true;
    } catch {
      return false; // Another source has replaced it meanwhile.
    } finally {
      for (const fd of fds) closeFd(fd);
    }
  }

  /** Gives a directory the attributes of the source. */
  #appear(at: string, from: string, stat: BigIntStats): void {
    copyAttributes(from, stat, at);
    this.#dress(at, stat);
  }

  #dress(at: string, stat: BigIntStats): void {
    const { uid, gid, mode } = this.#lookOf(stat);
    const isGiven = uid !== Number(stat.uid) || gid !== Number(stat.gid);
    if (isGiven) lchownSync(fsPath(at), uid, gid);
    if (stat.isSymbolicLink()) return;
    const before = Number(stat.mode & 0o7777n);
    // A change of the owner takes away the bits that give a program the rights of its owner.
    if (mode !== before || (isGiven && (before & 0o6000) !== 0)) chmodSync(fsPath(at), mode);
  }

  #lookOf(stat: BigIntStats): Look {
    const { owner, mode: modeOf } = this.appearance;
    const { uid, gid } = owner({ uid: Number(stat.uid), gid: Number(stat.gid) });
    const mode = modeOf(Number(stat.mode & 0o7777n), stat.isDirectory());
    if (!this.rules.dropsSetuid || !stat.isFile()) return { uid, gid, mode };
    return { uid, gid, mode: mode & ((mode & 0o010) === 0 ? ~0o4000 : ~0o6000) };
  }

  #openDirectory(path: string): number {
    try {
      return this.#open(path);
    } catch (error) {
      const { code } = error as NodeJS.ErrnoException;
      if (path === '/' || (code !== 'ENOENT' && code !== 'ENOTDIR')) throw error;
      if (code === 'ENOTDIR') throw fileOnTheWay(path, this.#fileOn(path));
    }
    const above = this.#openDirectory(parentPath(path));
    try {
      const at = `/proc/self/fd/${above}/${path.slice(path.lastIndexOf('/') + 1)}`;
      mkdirSync(fsPath(at), 0o755);
      chmodSync(fsPath(at), this.appearance.directoryMode);
      const { uid, gid } = this.appearance.directoryOwner;
      lchownSync(fsPath(at), uid, gid);
      this.#own.add(path);
    } finally {
      closeFd(above);
    }
    return this.#open(path);
  }

  /** Returns the part of a path that is a file, where a directory is wanted. */
  #fileOn(path: string): string {
    const above = parentPath(path);
    return this.isDirectory(above) ? path : this.#fileOn(above);
  }

  #open(path: string): number {
    const root = this.layer !== undefined && this.#own.has(path) ? this.layer.fd : this.rootFd;
    return openInRoot(root, fsPath(path), DIRECTORY);
  }
}

/** A file or directory of the source, and where it goes. */
interface Place {
  readonly from: string;
  readonly stat: BigIntStats;
  readonly at: string;
  /** The file that is there already. */
  readonly present: BigIntStats | undefined;
  readonly parent: number;
  readonly name: string;
  readonly to: string;
}
