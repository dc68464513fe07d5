/**
 * lstat of very many files. Node makes some thirty values of each, and a path through `/proc/self/fd` takes the kernel
 * longer than the file: here only what is asked for is made, and such a path is one below the descriptor.
 */
import { type BigIntStats, constants, fstatSync, lstatSync, openSync } from 'node:fs';
import { libc } from '../ffi/libc.js';

const OWN_DESCRIPTORS = '/proc/self/fd/';
const DIGITS = /^\d{1,9}$/;
/** Matches what koffi passes on as it is: neither bytes that are no UTF-8, nor a NUL that would end it. */
// oxlint-disable-next-line no-control-regex -- the range of ASCII
const PLAIN = /^[\u0001-\u007f]+$/;

// linux/fcntl.h and linux/stat.h
const AT_FDCWD = -100;
const AT_SYMLINK_NOFOLLOW = 0x100;
const AT_EMPTY_PATH = 0x1000;
/** All but what some file systems alone have. */
const STATX_ALL = 0xfff;
const ENOENT = 2;
const O_CLOEXEC = 0o2000000;
const READ = constants.O_RDONLY | constants.O_NOFOLLOW | constants.O_NONBLOCK;

const statx = libc.func<[fd: number, path: string, flags: number, mask: number, into: Uint32Array]>(
  'int statx(int fd, const char *path, int flags, unsigned int mask, void *into)',
);
const openat = libc.func<[fd: number, path: string, flags: number]>('int openat(int fd, const char *path, int flags)');

/** struct statx. */
const words = new Uint32Array(64);

/** Places of 32 bits in it; numbers of 64 bits have the low half first. */
const BLOCK_SIZE = 1;
const LINKS = 4;
const UID = 5;
const GID = 6;
/** The other half of the word is not used. */
const MODE = 7;
const INODE = 8;
const SIZE = 10;
const BLOCKS = 12;
const ACCESS = 16;
const BIRTH = 20;
const CHANGE = 24;
const MODIFICATION = 28;
const RDEV_MAJOR = 32;
const RDEV_MINOR = 33;
const DEV_MAJOR = 34;
const DEV_MINOR = 35;

const KIND = constants.S_IFMT;
const NS_PER_S = 1_000_000_000n;
const NS_PER_MS = 1_000_000n;

/**
 * Returns the same as `lstatSync` of Node, undefined when nothing is there.
 * @param path byte string.
 * @throws errno error, as `lstatSync`.
 */
export function quickStat(path: string): BigIntStats | undefined {
  const [fd, name] = belowDescriptor(path);
  if (PLAIN.test(name)) {
    if (statx(fd, name, AT_SYMLINK_NOFOLLOW, STATX_ALL, words) === 0) return new QuickStat();
    if (libc.errno() === ENOENT) return undefined;
  }
  return lstatSync(bytesOf(path), { bigint: true, throwIfNoEntry: false });
}

/** Returns the same as `fstatSync`. @throws errno error, as `fstatSync`. */
export function quickStatOpen(fd: number): BigIntStats {
  if (statx(fd, '', AT_EMPTY_PATH, STATX_ALL, words) === 0) return new QuickStat();
  return fstatSync(fd, { bigint: true });
}

/**
 * Opens a regular file for reading; a link is not followed. The caller closes the descriptor.
 * @param path byte string.
 * @throws errno error, as `openSync`.
 */
export function quickOpen(path: string): number {
  const [directory, name] = belowDescriptor(path);
  const fd = PLAIN.test(name) ? openat(directory, name, READ | O_CLOEXEC) : -1;
  return fd >= 0 ? fd : openSync(bytesOf(path), READ);
}

function bytesOf(path: string): string | Buffer {
  return PLAIN.test(path) ? path : Buffer.from(path, 'latin1');
}

/** Returns the descriptor and the rest of a path that begins with one of this process. */
function belowDescriptor(path: string): readonly [fd: number, rest: string] {
  if (!path.startsWith(OWN_DESCRIPTORS)) return [AT_FDCWD, path];
  const slash = path.indexOf('/', OWN_DESCRIPTORS.length);
  const number = path.slice(OWN_DESCRIPTORS.length, slash);
  // A rest that begins with a slash is no path below anything.
  if (slash < 0 || !DIGITS.test(number) || path[slash + 1] === '/') return [AT_FDCWD, path];
  return [Number(number), path.slice(slash + 1)];
}

/** The file that the last call has found. */
class QuickStat implements BigIntStats {
  readonly inodeLow = at(INODE);
  readonly inodeHigh = at(INODE + 1);
  readonly sizeLow = at(SIZE);
  readonly sizeHigh = at(SIZE + 1);
  readonly blocksLow = at(BLOCKS);
  readonly blocksHigh = at(BLOCKS + 1);
  readonly bits = at(MODE) & 0xffff;
  readonly links = at(LINKS);
  readonly user = at(UID);
  readonly group = at(GID);
  readonly blockSize = at(BLOCK_SIZE);
  readonly devMajor = at(DEV_MAJOR);
  readonly devMinor = at(DEV_MINOR);
  readonly rdevMajor = at(RDEV_MAJOR);
  readonly rdevMinor = at(RDEV_MINOR);
  readonly accessS = secondsAt(ACCESS);
  readonly accessNs = at(ACCESS + 2);
  readonly birthS = secondsAt(BIRTH);
  readonly birthNs = at(BIRTH + 2);
  readonly changeS = secondsAt(CHANGE);
  readonly changeNs = at(CHANGE + 2);
  readonly modificationS = secondsAt(MODIFICATION);
  readonly modificationNs = at(MODIFICATION + 2);

  get dev(): bigint {
    return deviceOf(this.devMajor, this.devMinor);
  }
  get ino(): bigint {
    return of64(this.inodeHigh, this.inodeLow);
  }
  get mode(): bigint {
    return BigInt(this.bits);
  }
  get nlink(): bigint {
    return BigInt(this.links);
  }
  get uid(): bigint {
    return BigInt(this.user);
  }
  get gid(): bigint {
    return BigInt(this.group);
  }
  get rdev(): bigint {
    return deviceOf(this.rdevMajor, this.rdevMinor);
  }
  get size(): bigint {
    return of64(this.sizeHigh, this.sizeLow);
  }
  get blksize(): bigint {
    return BigInt(this.blockSize);
  }
  get blocks(): bigint {
    return of64(this.blocksHigh, this.blocksLow);
  }
  get atimeNs(): bigint {
    return nsOf(this.accessS, this.accessNs);
  }
  get mtimeNs(): bigint {
    return nsOf(this.modificationS, this.modificationNs);
  }
  get ctimeNs(): bigint {
    return nsOf(this.changeS, this.changeNs);
  }
  get birthtimeNs(): bigint {
    return nsOf(this.birthS, this.birthNs);
  }
  get atimeMs(): bigint {
    return this.atimeNs / NS_PER_MS;
  }
  get mtimeMs(): bigint {
    return this.mtimeNs / NS_PER_MS;
  }
  get ctimeMs(): bigint {
    return this.ctimeNs / NS_PER_MS;
  }
  get birthtimeMs(): bigint {
    return this.birthtimeNs / NS_PER_MS;
  }
  get atime(): Date {
    return new Date(Number(this.atimeMs));
  }
  get mtime(): Date {
    return new Date(Number(this.mtimeMs));
  }
  get ctime(): Date {
    return new Date(Number(this.ctimeMs));
  }
  get birthtime(): Date {
    return new Date(Number(this.birthtimeMs));
  }

  isFile(): boolean {
    return (this.bits & KIND) === constants.S_IFREG;
  }
  isDirectory(): boolean {
    return (this.bits & KIND) === constants.S_IFDIR;
  }
  isSymbolicLink(): boolean {
    return (this.bits & KIND) === constants.S_IFLNK;
  }
  isFIFO(): boolean {
    return (this.bits & KIND) === constants.S_IFIFO;
  }
  isSocket(): boolean {
    return (this.bits & KIND) === constants.S_IFSOCK;
  }
  isCharacterDevice(): boolean {
    return (this.bits & KIND) === constants.S_IFCHR;
  }
  isBlockDevice(): boolean {
    return (this.bits & KIND) === constants.S_IFBLK;
  }
}

function at(place: number): number {
  return words[place] ?? 0;
}

function secondsAt(place: number): number {
  return (at(place + 1) | 0) * 0x1_0000_0000 + at(place);
}

function of64(high: number, low: number): bigint {
  return high === 0 ? BigInt(low) : (BigInt(high) << 32n) | BigInt(low);
}

function nsOf(seconds: number, nanoseconds: number): bigint {
  return BigInt(seconds) * NS_PER_S + BigInt(nanoseconds);
}

/** Packs a device number as glibc's makedev(3). */
function deviceOf(major: number, minor: number): bigint {
  if (major < 0x1000 && minor < 0x100) return BigInt(major * 0x100 + minor);
  const [a, b] = [BigInt(major), BigInt(minor)];
  return ((a & 0xfffff000n) << 32n) | ((a & 0xfffn) << 8n) | ((b & 0xffffff00n) << 12n) | (b & 0xffn);
}
