/**
 * Does what Node's fs cannot: device nodes, times in nanoseconds, flags. Paths are as in
 * Node's fs.
 */
import { invalid } from '../../errors/engine-error.js';
import { cPath, libc } from '../ffi/libc.js';

type Path = string | Buffer;

const mknod = libc.checked<[path: Path, mode: number, device: bigint]>(
  'mknod',
  'int mknod(const char *path, uint32_t mode, uint64_t dev)',
);
const mkfifo = libc.checked<[path: Path, mode: number]>('mkfifo', 'int mkfifo(const char *path, uint32_t mode)');
const utimensat = libc.checked<[dir: number, path: Path, times: Buffer, flags: number]>(
  'utimensat',
  'int utimensat(int dirfd, const char *path, const void *times, int flags)',
);
const futimens = libc.checked<[fd: number, times: Buffer]>('futimens', 'int futimens(int fd, const void *times)');

const ioctl = libc.func<[fd: number, request: number, argument: Buffer]>(
  'int ioctl(int fd, unsigned long request, void *argument)',
);

const cloneFile = libc.func<[fd: number, request: number, source: number]>(
  'int ioctl(int fd, unsigned long request, int source)',
);

// linux/fs.h, on machines of 64 bits
const FICLONE = 0x40049409;
const FS_IOC_FIEMAP = 0xc020660b;
const FS_IOC_GETFLAGS = 0x80086601;
const FS_IOC_SETFLAGS = 0x40086602;
const FS_TOPDIR_FL = 0x00020000;
// linux/fiemap.h
const FIEMAP_BYTES = 32;
const FIEMAP_EXTENT_BYTES = 56;
const EXTENT_COUNT_AT = 24;
const FIEMAP_LENGTH_AT = 8;
const EXTENT_FLAGS_AT = FIEMAP_BYTES + 40;
const MAPPED_EXTENTS_AT = 20;
const FIEMAP_EXTENT_DELALLOC = 0x4;
// linux/fcntl.h
const AT_FDCWD = -100;
const AT_SYMLINK_NOFOLLOW = 0x100;
// linux/stat.h
const KIND = { char: 0o020000, block: 0o060000 } as const;
const SOCKET = 0o140000;

// Two struct timespec of two 64 bit little-endian words: access time, modification time.
const times = Buffer.alloc(32);

const map = Buffer.alloc(FIEMAP_BYTES + FIEMAP_EXTENT_BYTES);

function fillTimes(seconds: number, nanoseconds: number): Buffer {
  const low = seconds >>> 0;
  const high = Math.floor(seconds / 0x1_0000_0000);
  for (const at of [0, 16]) {
    times.writeUInt32LE(low, at);
    times.writeInt32LE(high, at + 4);
    times.writeUInt32LE(nanoseconds, at + 8);
  }
  return times;
}

/**
 * Makes a device node with mode 0600 less the umask.
 * @throws EngineError invalid for numbers that Linux cannot hold (12 and 20 bits); code EEXIST, EPERM.
 */
export function makeDevice(path: Path, kind: keyof typeof KIND, major: number, minor: number): void {
  if (!(major >= 0 && major < 1 << 12 && minor >= 0 && minor < 1 << 20)) {
    throw invalid(`device number ${major}:${minor} is out of range`, { code: 'DEVICE_NUMBER' });
  }
  const device = ((minor & 0xfff00) * 0x1000 + (major << 8) + (minor & 0xff)) >>> 0;
  mknod(cPath(path), KIND[kind] | 0o600, BigInt(device));
}

/** Makes a FIFO with mode 0600 less the umask. @throws EngineError code EEXIST. */
export function makeFifo(path: Path): void {
  mkfifo(cPath(path), 0o600);
}

/** Makes the name of a socket that nobody has bound, with mode 0600 less the umask. @throws EngineError code EEXIST. */
export function makeSocket(path: Path): void {
  mknod(cPath(path), SOCKET | 0o600, 0n);
}

/** Sets access and modification time of the file itself, also when it is a symbolic link. */
export function setTimes(path: Path, seconds: number, nanoseconds: number): void {
  utimensat(AT_FDCWD, cPath(path), fillTimes(seconds, nanoseconds), AT_SYMLINK_NOFOLLOW);
}

/** Sets access and modification time of an open file. */
export function setOpenFileTimes(fd: number, seconds: number, nanoseconds: number): void {
  futimens(fd, fillTimes(seconds, nanoseconds));
}

/**
 * Gives an open file the content of another one by sharing its blocks. Returns false, and does nothing, where the file
 * systems cannot.
 */
export function shareContent(targetFd: number, sourceFd: number): boolean {
  return cloneFile(targetFd, FICLONE, sourceFd) === 0;
}

/**
 * Tells whether the beginning of an open file is in memory only, so that its blocks cannot be shared before they are
 * written to the disk. False where the file system does not tell.
 */
export function isInMemoryOnly(fd: number): boolean {
  map.fill(0);
  map.writeBigUInt64LE(0xffff_ffff_ffff_ffffn, FIEMAP_LENGTH_AT);
  map.writeUInt32LE(1, EXTENT_COUNT_AT);
  if (ioctl(fd, FS_IOC_FIEMAP, map) < 0 || map.readUInt32LE(MAPPED_EXTENTS_AT) === 0) return false;
  return (map.readUInt32LE(EXTENT_FLAGS_AT) & FIEMAP_EXTENT_DELALLOC) !== 0;
}

/**
 * Tells ext2 to ext4 that the directories in this one have nothing to do with each other (`chattr +T`): each gets a
 * part of the disk of its own. Returns false where the file system has no such thing.
 */
export function markTopDirectory(fd: number): boolean {
  const flags = Buffer.alloc(8);
  if (ioctl(fd, FS_IOC_GETFLAGS, flags) < 0) return false;
  flags.writeUInt32LE((flags.readUInt32LE(0) | FS_TOPDIR_FL) >>> 0, 0);
  return ioctl(fd, FS_IOC_SETFLAGS, flags) >= 0;
}
