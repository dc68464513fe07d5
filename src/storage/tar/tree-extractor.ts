/**
 * Unpacks a tar into a directory of a container, which may be changing it at the same moment. Directories are opened
 * inside the container's root, and everything is made by its name in an open directory; no existing file is written to.
 * So a link that somebody puts in the way cannot lead out. For worker threads.
 */
import {
  closeSync,
  constants,
  fchmodSync,
  fchownSync,
  lchownSync,
  linkSync,
  mkdirSync,
  openSync,
  rmdirSync,
  symlinkSync,
} from 'node:fs';
import { invalid } from '../../errors/engine-error.js';
import type { IdMaps, Owner } from '../../ports/id-maps.js';
import { closeFd } from '../../sys/files/fd.js';
import { ownerOnHost, rootOwner } from '../../sys/users/id-maps.js';
import type { WriteBehind } from '../../sys/files/write-behind.js';
import { makeDevice, makeFifo, setOpenFileTimes, setTimes } from '../../sys/files/inode.js';
import { O_PATH, openInRoot } from '../../sys/files/open-in-root.js';
import { fsPath, toText } from '../byte-path.js';
import { chmodNode } from '../chmod-node.js';
import { withCapabilityRoot } from '../file-capabilities.js';
import { statOf } from '../stat-of.js';
import { removeEntry } from '../remove-entry.js';
import { storageError } from '../storage-error.js';
import { cleanName } from './entry-name.js';
import { emptyHeader, type TarHeader } from './header.js';
import { setXattrs } from './layer-tree.js';
import { SparseWriter } from './sparse-writer.js';
import { isFileEntry, TarParser, type TarSink } from './tar-parser.js';

export interface TreeExtractorOptions {
  /** Descriptor of the container's root. */
  readonly rootFd: number;
  /** Byte string: an existing directory inside the root, absolute, without links. */
  readonly directory: string;
  /** If true, a directory cannot replace something else, nor the reverse. */
  readonly noOverwriteDirNonDir: boolean;
  /** The owner of everything, in the container; undefined: as the archive says. */
  readonly owner: Owner | undefined;
  /** Maps the owners to this host; undefined: they are the same. */
  readonly idMaps: IdMaps | undefined;
  /** As for SpaceAhead, for the files of an overlay. */
  readonly upperGains?: boolean;
  /** Writes what is lent of large files. */
  readonly behind?: WriteBehind;
}

type Xattrs = ReadonlyMap<string, Buffer> | undefined;

const CREATE = constants.O_WRONLY | constants.O_CREAT | constants.O_EXCL | constants.O_NOFOLLOW;
const OPEN_DIRECTORY = constants.O_RDONLY | constants.O_DIRECTORY | constants.O_NOFOLLOW;
/** So many directories are taken away again when an archive is refused; more are not noted. */
const MAX_MADE = 10_000;
/** A name is cleared so often when something else takes it again at once. */
const ATTEMPTS = 4;

export class TreeExtractor implements TarSink {
  readonly #options: TreeExtractorOptions;
  readonly #parser = new TarParser(this);
  #header: TarHeader = emptyHeader();
  #xattrs: Xattrs;
  /** The owner on this host. */
  #owner: Owner = this.#header;
  /** The directory of the last entry, which is mostly that of the next one, too. */
  #parent: { readonly path: string; readonly fd: number } | undefined;
  /** Where the entry under way goes: an open directory, the name in it, and both as a path. */
  #directory = -1;
  #name = '';
  #at = '';
  /** Writes the content of the entry under way, if it is a file. */
  #file: SparseWriter | undefined;
  /** The chunk under way is lent to `behind`. */
  #isLent = false;
  /**
   * Times of directories, by path inside the root. They are set at the end, because entries in a directory change them.
   */
  readonly #directoryTimes = new Map<string, { readonly seconds: number; readonly nanoseconds: number }>();

  /** Directories that were not there before, by path inside the root, each after the one that it is in. */
  readonly #made: string[] = [];

  constructor(options: TreeExtractorOptions) {
    this.#options = options;
  }

  /**
   * Takes the next bytes of the tar, in any portions.
   * @param isLent the chunk stays as it is until `behind` has written it; else it may be reused at once.
   * @throws EngineError invalid for a malformed tar and for what `noOverwriteDirNonDir` forbids, internal with
   * the errno's name as code.
   */
  write(chunk: Buffer, isLent = false): void {
    this.#isLent = isLent;
    this.#guarded(() => this.#parser.write(chunk));
  }

  /** Ends the tar, after the last byte. @throws EngineError as `write`; invalid for a tar that is cut off. */
  finish(): void {
    this.#guarded(() => {
      this.#parser.finish();
      for (const [path, { seconds, nanoseconds }] of this.#directoryTimes)
        this.#setDirectoryTimes(path, seconds, nanoseconds);
    });
  }

  /** Bytes that the file under way has so far; 0 between files. */
  get filePosition(): number {
    return this.#file?.position ?? 0;
  }

  /** Frees what is open. Idempotent. */
  close(): void {
    this.#file?.close();
    this.#file = undefined;
    if (this.#parent) closeFd(this.#parent.fd);
    this.#parent = undefined;
  }

  /** These four are called by the parser only. */
  raw(): void {}

  content(chunk: Buffer, start: number, end: number): void {
    this.#file?.write(chunk, start, end, this.#isLent);
  }

  contentEnd(): void {
    const file = this.#file;
    if (!file) return;
    file.finish();
    this.#setAttributes(file.fd, this.#at);
    setOpenFileTimes(file.fd, this.#header.mtimeSeconds, this.#header.mtimeNanoseconds);
    this.#file = undefined;
    file.close();
  }

  entry(header: TarHeader, xattrs: Xattrs): boolean {
    this.#header = header;
    const { owner = header, idMaps } = this.#options;
    this.#owner = ownerOnHost(idMaps, owner);
    this.#xattrs = idMaps ? withCapabilityRoot(xattrs, rootOwner(idMaps).uid) : xattrs;
    const name = nameInside(header.name, 'entry name');
    const isDirectory = header.type === '5' || (header.type === '\0' && header.name.endsWith('/'));
    if (name === '') {
      // The directory itself belongs to the container.
      if (isDirectory) return false;
      throw invalid(
        `cannot overwrite directory ${quote(this.#options.directory)} with non-directory ${quote(header.name)}`,
        { code: 'DIR_NON_DIR' },
      );
    }
    this.#directory = this.#placeOf(name);
    this.#name = name.slice(name.lastIndexOf('/') + 1);
    const at = `/proc/self/fd/${this.#directory}/${this.#name}`;
    this.#checkOverwrite(at, name, isDirectory);
    this.#at = at;
    if (isDirectory) this.#makeDirectory(at, name);
    else if (isFileEntry(header))
      this.#file = new SparseWriter(
        this.#create(() => openSync(fsPath(at), CREATE, 0o600)),
        header.sizeBytes,
        this.#options.upperGains,
        this.#options.behind,
      );
    else this.#makeOther(at);
    return this.#file !== undefined;
  }

  #guarded(work: () => void): void {
    try {
      work();
    } catch (error) {
      this.close();
      this.#removeEmpty();
      throw storageError(error, `unpacking ${quote(this.#parser.lastName)}`);
    }
  }

  /** Takes away the directories that were made for an archive that is refused, unless something is in them. */
  #removeEmpty(): void {
    for (const path of this.#made.splice(0).reverse()) {
      let parent: number | undefined;
      try {
        parent = openInRoot(this.#options.rootFd, fsPath(parentOf(path) || '/'), O_PATH | constants.O_DIRECTORY);
        rmdirSync(fsPath(`/proc/self/fd/${parent}/${path.slice(path.lastIndexOf('/') + 1)}`));
      } catch {
        // Something has come into it, so it stays, as does all that was unpacked before the fault.
      } finally {
        if (parent !== undefined) closeFd(parent);
      }
    }
  }

  #noteMade(path: string): void {
    if (this.#made.length < MAX_MADE) this.#made.push(path);
  }

  #checkOverwrite(at: string, name: string, isDirectory: boolean): void {
    if (!this.#options.noOverwriteDirNonDir) return;
    const present = statOf(at);
    if (!present || present.isDirectory() === isDirectory) return;
    const [old, added] = isDirectory ? ['non-directory', 'directory'] : ['directory', 'non-directory'];
    throw invalid(`cannot overwrite ${old} ${quote(this.#inRoot(name))} with ${added} ${quote(name)}`, {
      code: 'DIR_NON_DIR',
    });
  }

  /** Runs `make`, which fails with EEXIST when the name is taken; then clears the name and runs it again. */
  #create<T>(make: () => T): T {
    for (let attempt = 1; ; attempt++) {
      try {
        return make();
      } catch (error) {
        if ((error as NodeJS.ErrnoException).code !== 'EEXIST' || attempt === ATTEMPTS) throw error;
      }
      removeEntry(this.#directory, this.#name);
    }
  }

  #makeDirectory(at: string, name: string): void {
    let fd: number | undefined;
    for (let attempt = 1; fd === undefined; attempt++) {
      if (!statOf(at)?.isDirectory()) {
        this.#create(() => mkdirSync(fsPath(at), 0o700));
        this.#noteMade(this.#inRoot(name));
      }
      try {
        fd = openSync(fsPath(at), OPEN_DIRECTORY);
      } catch (error) {
        if (attempt === ATTEMPTS) throw error;
      }
    }
    try {
      this.#setAttributes(fd, at);
    } finally {
      closeSync(fd);
    }
    this.#directoryTimes.set(this.#inRoot(name), {
      seconds: this.#header.mtimeSeconds,
      nanoseconds: this.#header.mtimeNanoseconds,
    });
  }

  #makeOther(at: string): void {
    const { type, linkName, deviceMajor, deviceMinor, mtimeSeconds, mtimeNanoseconds } = this.#header;
    switch (type) {
      case '1':
        this.#makeHardLink(at, nameInside(linkName, 'hardlink target'));
        // Its attributes are those of the file that it links to.
        return;
      case '2':
        this.#create(() => symlinkSync(fsPath(linkName), fsPath(at)));
        break;
      case '3':
      case '4':
        this.#create(() => makeDevice(fsPath(at), type === '3' ? 'char' : 'block', deviceMajor, deviceMinor));
        break;
      case '6':
        this.#create(() => makeFifo(fsPath(at)));
        break;
      case 'S':
        throw invalid('tar has a sparse file, which is not supported', { code: 'TAR_SPARSE' });
      default:
        throw invalid(`tar has an entry of the unknown type ${JSON.stringify(type)}`, { code: 'TAR_TYPE' });
    }
    this.#setAttributes(undefined, at);
    setTimes(fsPath(at), mtimeSeconds, mtimeNanoseconds);
  }

  #makeHardLink(at: string, target: string): void {
    if (target === '') throw invalid('hard link to a directory', { code: 'TAR_LINK' });
    let parent: number | undefined;
    try {
      const directory = fsPath(this.#inRoot(parentOf(target)));
      parent = openInRoot(this.#options.rootFd, directory, O_PATH | constants.O_DIRECTORY);
      const source = `/proc/self/fd/${parent}/${target.slice(target.lastIndexOf('/') + 1)}`;
      this.#create(() => linkSync(fsPath(source), fsPath(at)));
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code !== 'ENOENT') throw error;
      const words = `linkat ${toText(target)} ${toText(this.#name)}: no such file or directory`;
      throw invalid(words, { code: 'TAR_LINK', cause: error });
    } finally {
      if (parent !== undefined) closeFd(parent);
    }
  }

  /** Sets the attributes. The owner comes first, because its change removes setuid bits and capabilities. */
  #setAttributes(fd: number | undefined, at: string): void {
    const { uid, gid } = this.#owner;
    const { mode, type } = this.#header;
    if (fd !== undefined) {
      fchownSync(fd, uid, gid);
      fchmodSync(fd, mode);
    } else {
      lchownSync(fsPath(at), uid, gid);
      if (type !== '2') chmodNode(fsPath(at), mode);
    }
    setXattrs(fsPath(at), this.#xattrs);
  }

  #setDirectoryTimes(path: string, seconds: number, nanoseconds: number): void {
    let fd: number;
    try {
      fd = openInRoot(this.#options.rootFd, fsPath(path), OPEN_DIRECTORY);
    } catch {
      // The container has removed or replaced the directory, so its times do not matter.
      return;
    }
    try {
      setOpenFileTimes(fd, seconds, nanoseconds);
    } finally {
      closeFd(fd);
    }
  }

  /**
   * Returns an open descriptor of the directory of a name, which is made if it is missing. It is valid until the next
   * call.
   */
  #placeOf(name: string): number {
    const path = this.#inRoot(parentOf(name));
    if (this.#parent?.path === path) return this.#parent.fd;
    const fd = this.#openDirectory(path);
    if (this.#parent) closeFd(this.#parent.fd);
    this.#parent = { path, fd };
    return fd;
  }

  #openDirectory(path: string): number {
    try {
      return openInRoot(this.#options.rootFd, fsPath(path), O_PATH | constants.O_DIRECTORY);
    } catch (error) {
      if (path === '/' || (error as NodeJS.ErrnoException).code !== 'ENOENT') throw error;
    }
    const above = this.#openDirectory(parentOf(path) || '/');
    try {
      const at = `/proc/self/fd/${above}/${path.slice(path.lastIndexOf('/') + 1)}`;
      try {
        mkdirSync(fsPath(at), 0o755);
        this.#noteMade(path);
      } catch (error) {
        // It is a dangling link, or the container was faster.
        if ((error as NodeJS.ErrnoException).code !== 'EEXIST') throw error;
      }
    } finally {
      closeFd(above);
    }
    return openInRoot(this.#options.rootFd, fsPath(path), O_PATH | constants.O_DIRECTORY);
  }

  #inRoot(name: string): string {
    const { directory } = this.#options;
    if (name === '') return directory;
    return directory === '/' ? `/${name}` : `${directory}/${name}`;
  }
}

/** Cleans a name or refuses it in the words of dockerd. @throws EngineError invalid for one that climbs out. */
function nameInside(written: string, what: 'entry name' | 'hardlink target'): string {
  try {
    return cleanName(written);
  } catch (error) {
    throw invalid(`invalid ${what} ${quote(written)}`, { code: 'TAR_BREAKOUT', cause: error });
  }
}

const parentOf = (path: string): string => path.slice(0, Math.max(path.lastIndexOf('/'), 0));
const quote = (path: string): string => JSON.stringify(toText(path));
