/** Files inside a container's root filesystem, reached without ever leaving it. */
import { constants } from 'node:fs';
import { libc, syscallError } from './libc.js';

// linux/openat2.h; the number is the same on every architecture.
const SYS_OPENAT2 = 437;
const RESOLVE_NO_MAGICLINKS = 0x02;
const RESOLVE_IN_ROOT = 0x10;
const O_CLOEXEC = 0o2000000;
const OPEN_HOW_BYTES = 24;

const openat2 = libc.func<[number: number, dirfd: number, path: string, how: Buffer, size: number]>(
  'long syscall(long number, int dirfd, const char *path, void *how, size_t size)',
);

/**
 * Opens `path` for reading as if the open directory `rootFd` were `/`: symbolic links, absolute ones too, and `..` stay
 * below it whatever the container does meanwhile (man 2 openat2, Linux 5.6). Does not wait for the writer of a FIFO.
 * The caller closes the descriptor.
 * @throws EngineError code ENOENT, ENOTDIR, ELOOP, EACCES, …
 */
export function openInRoot(rootFd: number, path: string): number {
  const how = Buffer.alloc(OPEN_HOW_BYTES);
  how.writeBigUInt64LE(BigInt(constants.O_RDONLY | constants.O_NONBLOCK | constants.O_NOCTTY | O_CLOEXEC), 0);
  how.writeBigUInt64LE(BigInt(RESOLVE_IN_ROOT | RESOLVE_NO_MAGICLINKS), 16);
  const fd = openat2(SYS_OPENAT2, rootFd, path, how, how.length);
  if (fd < 0) throw syscallError('openat2', libc.errno());
  return fd;
}
