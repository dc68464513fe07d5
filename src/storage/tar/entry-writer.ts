/** Turns files of a walked tree into tar entries. Synchronous, for worker threads. */
import { closeSync, readlinkSync, readSync, type BigIntStats } from 'node:fs';
import { internal } from '../../errors/engine-error.js';
import type { IdMaps } from '../../ports/id-maps.js';
import { containerOwner } from '../../sys/users/id-maps.js';
import { getXattr, listXattrs } from '../../sys/files/xattr.js';
import { fsPath } from '../byte-path.js';
import { deviceMajor, deviceMinor, isContentXattr } from '../copy-attributes.js';
import { withoutCapabilityRoot } from '../file-capabilities.js';
import { openRegular, openStill } from '../open-regular.js';
import { encodeHeader, padding, type EntryHeader } from './header-writer.js';

/** A file and the path by which the system finds it, from the walk of a tree. */
export interface TarSource {
  readonly at: string;
  readonly stat: BigIntStats;
}

/** Is told what of the files goes into a tar, while it is being made. */
export interface TarWatcher {
  /** The next `sizeBytes` bytes of the tar are the content of a file, in pieces of their own. */
  content(name: string, sizeBytes: number): void;
  /** An attribute of a file; `value` is undefined for one that is left out. */
  attribute(name: string, value: Buffer | undefined): void;
}

const BLOCK_BYTES = 512;

export class EntryWriter {
  /** For a file with several names: the name that has the content, by device and inode. */
  readonly #firstNames = new Map<string, string>();
  readonly #buffer: () => Buffer;
  /** The time of all entries, in seconds since 1970; undefined: each has its own. */
  mtimeSeconds: number | undefined;
  /** Files may have so many bytes in all of which the disk has nothing. A container makes more than anybody reads. */
  holeBytesLeft = Number.POSITIVE_INFINITY;

  /**
   * @param buffer returns the memory that the next piece of content is read into.
   * @param idMaps maps the owners of the files to those in containers. Default: they are the same.
   * @param isStill nobody changes the files meanwhile.
   */
  constructor(
    buffer: () => Buffer,
    private readonly idMaps?: IdMaps,
    private readonly watcher?: TarWatcher,
    private readonly isStill = false,
  ) {
    this.#buffer = buffer;
  }

  /**
   * Returns the bytes of one entry; none for sockets and for files that vanished. Content comes in pieces that fill the
   * given buffers. Its length is that of the file when it is opened: a file that grows is cut, one that shrinks is
   * filled with zeros. @throws EngineError code ENOSPC for holes beyond `holeBytesLeft`.
   * @param name byte string, without a slash at its end.
   */
  *write({ at, stat }: TarSource, name: string): Generator<Buffer> {
    if (stat.isSocket()) return;
    const isShared = stat.nlink > 1n && !stat.isDirectory();
    const inode = isShared ? `${stat.dev}:${stat.ino}` : '';
    const first = isShared ? this.#firstNames.get(inode) : undefined;
    if (first !== undefined) {
      yield encodeHeader({ ...this.#common(stat), type: '1', name, linkName: first });
      return;
    }
    if (stat.isFile()) {
      yield* this.#file({ at, stat }, name);
    } else {
      const header = this.#otherHeader({ at, stat }, name);
      if (!header) return;
      yield encodeHeader(header);
    }
    if (isShared) this.#firstNames.set(inode, name);
  }

  *#file({ at, stat: seen }: TarSource, name: string): Generator<Buffer> {
    const file = this.isStill ? openStill(at, seen) : openRegular(at);
    if (!file) return;
    const { fd, stat } = file;
    try {
      // The size must be that of the file that is read, whatever has its name meanwhile.
      const sizeBytes = Number(stat.size);
      this.#passHoles(sizeBytes - Number(stat.blocks) * BLOCK_BYTES);
      // Each name by itself: to spread an object takes several times as long, and there are many files.
      const { mode, uid, gid, mtimeSeconds } = this.#common(stat);
      yield encodeHeader({ type: '0', name, mode, uid, gid, sizeBytes, mtimeSeconds, xattrs: this.#xattrs(at) });
      if (sizeBytes > 0) this.watcher?.content(name, sizeBytes);
      for (let left = sizeBytes; left > 0;) {
        const buffer = this.#buffer();
        let length = readSync(fd, buffer, 0, Math.min(left, buffer.length), null);
        if (length === 0) {
          length = Math.min(left, buffer.length);
          buffer.fill(0, 0, length);
        }
        left -= length;
        yield buffer.subarray(0, length);
      }
      yield padding(sizeBytes);
    } finally {
      closeSync(fd);
    }
  }

  #passHoles(bytes: number): void {
    if (bytes > 0) this.holeBytesLeft -= bytes;
    if (this.holeBytesLeft < 0) throw internal('the files have more holes than the disk has room', { code: 'ENOSPC' });
  }

  /** Returns the header of an entry without content; undefined if the file vanished. */
  #otherHeader({ at, stat }: TarSource, name: string): EntryHeader | undefined {
    try {
      const header = { ...this.#common(stat), name, xattrs: this.#xattrs(at) };
      if (stat.isDirectory()) return { ...header, type: '5', name: `${name}/` };
      if (stat.isSymbolicLink()) return { ...header, type: '2', linkName: readlinkSync(fsPath(at), 'latin1') };
      if (stat.isFIFO()) return { ...header, type: '6' };
      const type = stat.isCharacterDevice() ? '3' : '4';
      return { ...header, type, deviceMajor: deviceMajor(stat.rdev), deviceMinor: deviceMinor(stat.rdev) };
    } catch (error) {
      const { code } = error as NodeJS.ErrnoException;
      // EINVAL means that it is no symbolic link any more.
      if (code === 'ENOENT' || code === 'ENOTDIR' || code === 'EINVAL') return undefined;
      throw error;
    }
  }

  #common(stat: FileFacts): ReturnType<typeof commonFields> {
    return commonFields(stat, this.idMaps, this.mtimeSeconds);
  }

  #xattrs(at: string): [string, Buffer][] {
    const { idMaps, watcher } = this;
    try {
      return listXattrs(fsPath(at)).flatMap((name): [string, Buffer][] => {
        const value = isContentXattr(name) ? getXattr(fsPath(at), name) : undefined;
        watcher?.attribute(name, value);
        return value ? [[name, idMaps ? withoutCapabilityRoot(name, value) : value]] : [];
      });
    } catch (error) {
      // The file was renamed or removed meanwhile.
      if ((error as NodeJS.ErrnoException).code === 'ENOENT') return [];
      throw error;
    }
  }
}

export interface FileOwner {
  readonly uid: number | bigint;
  readonly gid: number | bigint;
}

/** The facts that a tar tells of every file. */
export interface FileFacts extends FileOwner {
  readonly mode: number | bigint;
  readonly mtimeNs: bigint;
}

/**
 * Returns the fields that every type of entry has; times are cut to seconds as in the Docker engine.
 * @param mtimeSeconds takes the place of the file's time.
 */
export function commonFields(
  facts: FileFacts,
  idMaps: IdMaps | undefined,
  mtimeSeconds = secondsOf(facts.mtimeNs),
): Pick<EntryHeader, 'mode' | 'uid' | 'gid' | 'sizeBytes' | 'mtimeSeconds'> {
  const written = { uid: Number(facts.uid), gid: Number(facts.gid) };
  const { uid, gid } = idMaps ? containerOwner(idMaps, written) : written;
  return { mode: Number(facts.mode) & 0o7777, uid, gid, sizeBytes: 0, mtimeSeconds };
}

function secondsOf(ns: bigint): number {
  return Number(ns / 1_000_000_000n - (ns < 0n && ns % 1_000_000_000n !== 0n ? 1n : 0n));
}
