/**
 * The difference directory of a layer while a tar fills it. Nobody else writes there, so the directories that were made
 * here are known to be directories: a name whose parent is known needs no look at the disk, and no symbolic link is
 * ever followed by the kernel in a parent.
 */
import {
  chmodSync,
  lchownSync,
  linkSync,
  lstatSync,
  mkdirSync,
  readdirSync,
  readlinkSync,
  rmdirSync,
  symlinkSync,
  unlinkSync,
  type Stats,
} from 'node:fs';
import { invalid } from '../../errors/engine-error.js';
import type { Owner } from '../../ports/id-maps.js';
import { makeDevice, makeFifo, setTimes } from '../../sys/files/inode.js';
import { setXattr } from '../../sys/files/xattr.js';
import { isInUserNamespace } from '../../sys/users/user-namespace.js';
import { fsPath, toBytePath } from '../byte-path.js';
import { isMark, isWhiteout, makeOpaque, makeWhiteout } from '../layers/marks.js';
import { DanglingLinks } from './dangling-links.js';
import { DisplacedFiles } from './displaced-files.js';
import { breakout } from './entry-name.js';
import type { TarHeader } from './header.js';

/** At most so many links are followed while one parent is resolved, as in the kernel. */
const MAX_LINKS = 40;

/**
 * Attributes that are set on a directory when the whole tar was read, because later entries would change its times
 * again.
 */
interface Directory {
  /** False for a directory that no entry named. */
  named: boolean;
  opaque: boolean;
  /** True if this tar deletes the directory below, so that nothing of it is seen, not even its attributes. */
  isNew: boolean;
  mode: number;
  uid: number;
  gid: number;
  mtimeSeconds: number;
  mtimeNanoseconds: number;
  xattrs: ReadonlyMap<string, Buffer> | undefined;
}

type Xattrs = ReadonlyMap<string, Buffer> | undefined;

const implicit = ({ uid, gid }: Owner): Directory => ({
  named: false,
  opaque: false,
  isNew: false,
  mode: 0o755,
  uid,
  gid,
  mtimeSeconds: 0,
  mtimeNanoseconds: 0,
  xattrs: undefined,
});

export class LayerTree {
  readonly #root: string;
  /** Directories by path without links, '' for the root; parents come before children. */
  readonly #directories = new Map<string, Directory>();
  /** Names made by hard link entries: their content belongs to another name. */
  readonly #linkNames = new Set<string>();
  readonly #dangling = new DanglingLinks();
  readonly #whiteouts = new Set<string>();
  readonly #displaced: DisplacedFiles;

  /** @param owner of directories that no entry names. */
  constructor(
    diffDir: string,
    tarSplitPath: string,
    private readonly owner: Owner,
  ) {
    this.#root = `${toBytePath(diffDir)}/`;
    this.#directories.set('', implicit(owner));
    this.#displaced = new DisplacedFiles(this.#root, tarSplitPath);
  }

  /** Returns the place of a path on the disk, for calls into the system. */
  at(path: string): string | Buffer {
    return fsPath(this.#root + path);
  }

  /**
   * Returns the path with the links of its parents resolved inside the layer, and makes missing parents.
   * @throws EngineError invalid when a parent is not a directory or leads out of the layer.
   */
  place(name: string): string {
    const slash = name.lastIndexOf('/');
    if (slash < 0) return name;
    const parent = name.slice(0, slash);
    if (this.#directories.has(parent)) return name;
    return `${this.#walk(name, parent, true)}${name.slice(slash)}`;
  }

  makeDirectory(path: string, header: TarHeader, xattrs: Xattrs): void {
    let directory = this.#directories.get(path);
    if (!directory) {
      directory = implicit(this.owner);
      directory.opaque = this.#create(path, () => mkdirSync(this.at(path), 0o700));
      this.#directories.set(path, directory);
    }
    directory.named = true;
    directory.mode = header.mode;
    directory.uid = header.uid;
    directory.gid = header.gid;
    directory.mtimeSeconds = header.mtimeSeconds;
    directory.mtimeNanoseconds = header.mtimeNanoseconds;
    directory.xattrs = xattrs;
  }

  /** Runs `make`, which fails with EEXIST when the name is taken; then makes room and runs it again. */
  makeFile(path: string, make: () => void): void {
    this.#create(path, make);
  }

  makeSymlink(path: string, header: TarHeader, xattrs: Xattrs): void {
    this.#create(path, () => symlinkSync(fsPath(header.linkName), this.at(path)));
    const at = this.at(path);
    if (header.uid !== 0 || header.gid !== 0) lchownSync(at, header.uid, header.gid);
    setXattrs(at, xattrs);
    setTimes(at, header.mtimeSeconds, header.mtimeNanoseconds);
  }

  makeNode(path: string, header: TarHeader, xattrs: Xattrs): void {
    const at = this.at(path);
    // Only root of the machine may make devices: an ordinary user's containers do without those of images.
    if (header.type !== '6' && isInUserNamespace()) {
      this.#makeRoom(path);
      return;
    }
    this.#create(path, () => {
      if (header.type === '6') makeFifo(at);
      else makeDevice(at, header.type === '3' ? 'char' : 'block', header.deviceMajor, header.deviceMinor);
    });
    if (header.uid !== 0 || header.gid !== 0) lchownSync(at, header.uid, header.gid);
    chmodSync(at, header.mode);
    setXattrs(at, xattrs);
    setTimes(at, header.mtimeSeconds, header.mtimeNanoseconds);
  }

  /**
   * Makes a hard link. `target` is a cleaned name; a target that is not in this layer is left to the commit of the
   * layer.
   */
  makeHardLink(path: string, target: string): void {
    const source = this.#find(target);
    const stat = source === undefined ? undefined : lstatSync(this.at(source), { throwIfNoEntry: false });
    if (source === undefined || !stat) {
      if (path === (source ?? target)) throw invalid('hard link to itself', { code: 'TAR_LINK' });
      this.#makeRoom(path);
      this.#dangling.add(path, source ?? target);
      return;
    }
    if (path === source) return; // GNU tar writes a file that was named twice like this
    if (stat.isDirectory()) throw invalid('hard link to a directory', { code: 'TAR_LINK' });
    if (isWhiteout(stat)) throw invalid('hard link to a file that this layer deletes', { code: 'TAR_LINK' });
    this.#create(path, () => linkSync(this.at(source), this.at(path)));
    this.#linkNames.add(path);
  }

  /**
   * Hides what the layers below have at a path. What this layer itself has there stays (OCI image layer, "Whiteouts").
   */
  makeWhiteout(path: string): void {
    const own = this.#directories.get(path);
    if (own) own.opaque = own.isNew = true;
    if (own || this.#dangling.has(path) || lstatSync(this.at(path), { throwIfNoEntry: false })) return;
    makeWhiteout(this.#root + path);
    this.#whiteouts.add(path);
  }

  /** Hides what the layers below have in a directory ('' for the root), which is made if it is missing. */
  makeOpaque(name: string): void {
    const path = this.#directories.has(name) ? name : this.#walk(name, name, true);
    const directory = this.#directories.get(path);
    if (directory) directory.opaque = true;
  }

  /** Sets what waited for the end of the tar, and returns what only the layers below can complete. */
  finish(): { implicitDirs: string[]; danglingLinks: { path: string; target: string }[]; whiteouts: string[] } {
    const implicitDirs: string[] = [];
    for (const [path, directory] of this.#directories) {
      const at = this.at(path);
      if (directory.opaque) makeOpaque(this.#root + path);
      if (directory.uid !== 0 || directory.gid !== 0) lchownSync(at, directory.uid, directory.gid);
      chmodSync(at, directory.mode);
      if (!directory.named) {
        if (!directory.isNew) implicitDirs.push(path);
        continue;
      }
      setXattrs(at, directory.xattrs);
      setTimes(at, directory.mtimeSeconds, directory.mtimeNanoseconds);
    }
    this.#displaced.finish();
    return {
      implicitDirs,
      danglingLinks: this.#dangling.list(),
      whiteouts: [...this.#whiteouts],
    };
  }

  /** Makes a file. Returns true when a whiteout of this tar had the name. */
  #create(path: string, make: () => void): boolean {
    if (path === '') throw invalid('the root of the layer is not a directory', { code: 'TAR_ROOT' });
    this.#dangling.remove(path);
    try {
      make();
      return false;
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code !== 'EEXIST') throw error;
    }
    const wasWhiteout = this.#makeRoom(path);
    make();
    return wasWhiteout;
  }

  /** Removes what an earlier entry made at a path, if any. Returns true when that was a whiteout. */
  #makeRoom(path: string): boolean {
    const stat = lstatSync(this.at(path), { throwIfNoEntry: false });
    if (!stat) return false;
    const wasWhiteout = this.#whiteouts.has(path);
    if (stat.isDirectory()) {
      if (path === '') throw invalid('the root of the layer is not a directory', { code: 'TAR_ROOT' });
      this.#removeTree(path);
    } else {
      this.#removeName(path, stat.isFile() && stat.size > 0);
    }
    return wasWhiteout;
  }

  #removeName(path: string, hasContent: boolean): void {
    if (!this.#linkNames.delete(path) && hasContent) this.#displaced.take(path);
    else unlinkSync(this.at(path));
    this.#whiteouts.delete(path);
  }

  #removeTree(path: string): void {
    for (const entry of readdirSync(this.at(path), { encoding: 'latin1', withFileTypes: true })) {
      const child = `${path}/${entry.name}`;
      if (entry.isDirectory()) this.#removeTree(child);
      else this.#removeName(child, entry.isFile() && lstatSync(this.at(child)).size > 0);
    }
    rmdirSync(this.at(path));
    this.#directories.delete(path);
    this.#dangling.removeDirectory(path);
  }

  /**
   * Returns the path of a cleaned name with the links of its parents resolved; undefined when a parent is not in this
   * layer.
   */
  #find(name: string): string | undefined {
    const slash = name.lastIndexOf('/');
    if (slash < 0) return name;
    const parent = name.slice(0, slash);
    if (this.#directories.has(parent)) return name;
    const found = this.#walk(name, parent, false);
    return found === undefined ? undefined : `${found}${name.slice(slash)}`;
  }

  #walk(name: string, directory: string, make: true): string;
  #walk(name: string, directory: string, make: boolean): string | undefined;
  #walk(name: string, directory: string, make: boolean): string | undefined {
    const rest = directory.split('/').reverse();
    let links = 0;
    let path = '';
    for (let part = rest.pop(); part !== undefined; part = rest.pop()) {
      if (part === '' || part === '.') continue;
      if (part === '..') {
        if (path === '') throw breakout(name);
        path = path.slice(0, Math.max(path.lastIndexOf('/'), 0));
        continue;
      }
      const next = path === '' ? part : `${path}/${part}`;
      if (this.#directories.has(next)) {
        path = next;
        continue;
      }
      const stat = lstatSync(this.at(next), { throwIfNoEntry: false });
      if (!stat?.isSymbolicLink()) {
        if (!make) return undefined;
        this.#makeImplicit(next, stat);
        path = next;
        continue;
      }
      if (++links > MAX_LINKS) throw invalid('too many symbolic links in the path', { code: 'TAR_LINK' });
      const target = readlinkSync(this.at(next), 'latin1');
      if (target.startsWith('/')) path = '';
      rest.push(...target.split('/').reverse());
    }
    return path;
  }

  #makeImplicit(path: string, found: Stats | undefined): void {
    const directory = implicit(this.owner);
    if (found) {
      if (!isWhiteout(found))
        throw invalid(`${JSON.stringify(path)} is not a directory`, { code: 'TAR_NOT_DIRECTORY' });
      // The directory was deleted, and is made again by an entry in it: nothing of the layers below is seen.
      unlinkSync(this.at(path));
      this.#whiteouts.delete(path);
      directory.opaque = directory.isNew = true;
    }
    mkdirSync(this.at(path), 0o700);
    this.#directories.set(path, directory);
  }
}

/** Sets the attributes of an entry, except those that control overlayfs: an image must not set them. */
export function setXattrs(at: string | Buffer, xattrs: Xattrs): void {
  if (!xattrs) return;
  for (const [name, value] of xattrs) {
    if (isMark(name)) continue;
    try {
      setXattr(at, name, value);
    } catch (error) {
      // This file system, or this type of file, has no such attributes, or only root of the machine may set them: the
      // file can be used without it.
      const { code } = error as NodeJS.ErrnoException;
      const isForbidden = code === 'EPERM' && (name.startsWith('user.') || isInUserNamespace());
      if (code !== 'ENOTSUP' && !isForbidden) throw error;
    }
  }
}
