/** Opens files inside a container's root filesystem without ever leaving it. */
import { constants } from 'node:fs';
import { closeFd } from './fd.js';
import { cPath, libc, syscallError } from '../ffi/libc.js';

// linux/openat2.h; the number is the same on every architecture.
const SYS_OPENAT2 = 437;
const RESOLVE_NO_XDEV = 0x01;
const RESOLVE_NO_MAGICLINKS = 0x02;
const RESOLVE_IN_ROOT = 0x10;
const AT_FDCWD = -100;
const O_CLOEXEC = 0o2000000;
const OPEN_HOW_BYTES = 24;
const EAGAIN = 11;

/**
 * How often a call is made that the kernel asks to make again. A path with `..` gets EAGAIN when anything on the host
 * is mounted or renamed during the look-up (man 2 openat2). One call takes some microseconds, so even a container that
 * renames without end lets one of these pass, and the main thread is busy for some milliseconds at the very most.
 */
const MOST_CALLS = 1000;

/** linux/fcntl.h: a descriptor that stands for a place in the tree; what is there is not opened, whatever it is. */
export const O_PATH = 0o10000000;

const openat2 = libc.func<[number: number, dirfd: number, path: string | Buffer, how: Buffer, size: number]>(
  'long syscall(long number, int dirfd, const char *path, void *how, size_t size)',
);

/**
 * Opens `path` as if the open directory `rootFd` were `/`: symbolic links, absolute ones too, and `..` stay below it
 * whatever the container does meanwhile (man 2 openat2, Linux 5.6). Opens for reading unless `flags` say otherwise, and
 * does not wait for the writer of a FIFO. The caller closes the descriptor (`closeFd`).
 * @throws EngineError code ENOENT, ENOTDIR, ELOOP, EACCES, …
 */
export function openInRoot(rootFd: number, path: string | Buffer, flags: number = constants.O_RDONLY): number {
  return open(rootFd, path, flags, RESOLVE_IN_ROOT | RESOLVE_NO_MAGICLINKS);
}

/**
 * Opens a place by several paths, such as that of a volume and that of a place in it: each begins where the one before
 * has led to, and cannot leave that. `root` is followed as the host has it. The caller closes the descriptor.
 * @throws EngineError as `openInRoot`.
 */
export function openNested(root: string, paths: readonly string[], flags: number): number {
  let fd = open(AT_FDCWD, root, O_PATH, 0);
  for (const [index, path] of paths.entries()) {
    const from = fd;
    try {
      fd = openInRoot(from, path, index === paths.length - 1 ? flags : O_PATH);
    } finally {
      closeFd(from);
    }
  }
  return fd;
}

/**
 * Does the same as `openInRoot` for one name in the open directory; a link is not followed.
 * @throws EngineError code EXDEV when something is mounted there; ELOOP for a symbolic link unless it is opened as a
 * place.
 */
export function openUnmounted(directoryFd: number, name: string | Buffer, flags: number): number {
  return open(
    directoryFd,
    name,
    flags | constants.O_NOFOLLOW,
    RESOLVE_IN_ROOT | RESOLVE_NO_MAGICLINKS | RESOLVE_NO_XDEV,
  );
}

function open(directoryFd: number, path: string | Buffer, flags: number, resolve: number): number {
  const how = Buffer.alloc(OPEN_HOW_BYTES);
  // The kernel refuses flags that mean nothing beside O_PATH.
  const always = (flags & O_PATH) === 0 ? constants.O_NONBLOCK | constants.O_NOCTTY | O_CLOEXEC : O_CLOEXEC;
  how.writeBigUInt64LE(BigInt(flags | always), 0);
  how.writeBigUInt64LE(BigInt(resolve), 16);
  const name = cPath(path);
  for (let calls = 1; ; calls += 1) {
    const fd = openat2(SYS_OPENAT2, directoryFd, name, how, how.length);
    if (fd >= 0) return fd;
    const errno = libc.errno();
    if (errno !== EAGAIN || calls === MOST_CALLS) throw syscallError('openat2', errno);
  }
}
