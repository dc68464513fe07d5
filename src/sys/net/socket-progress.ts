/** Measures the progress of a socket that somebody else reads from and writes to. */
import { libc } from '../ffi/libc.js';

// linux/socket.h, linux/sockios.h; the same on every architecture that we have binaries for.
const SOL_SOCKET = 1;
const SO_SNDBUF = 7;
const SO_SNDBUFFORCE = 32;
const SO_DOMAIN = 39;
const SO_PEEK_OFF = 42;
const AF_UNIX = 1;
const TIOCOUTQ = 0x5411;
const FIONREAD = 0x541b;
/** Far more than is ever read before the next `startCounting`. */
const START = 1 << 30;

const setsockopt = libc.func<[fd: number, level: number, name: number, value: Int32Array, length: number]>(
  'int setsockopt(int fd, int level, int name, const void *value, uint32_t length)',
);
const getsockopt = libc.checked<[fd: number, level: number, name: number, value: Int32Array, length: Uint32Array]>(
  'getsockopt',
  'int getsockopt(int fd, int level, int name, _Out_ void *value, _Inout_ uint32_t *length)',
);
const ioctl = libc.checked<[fd: number, request: bigint, value: Int32Array]>(
  'ioctl',
  'int ioctl(int fd, uint64_t request, _Out_ int *value)',
);

/**
 * From now on counts the bytes that are read from a socket. The kernel moves the position of MSG_PEEK back by what is
 * read (SO_PEEK_OFF, socket(7)): far ahead of everything it is a counter. Nothing can be peeked at until
 * `stopCounting`.
 * @returns false where the kernel cannot: tcp before Linux 6.9.
 */
export function startCounting(fd: number): boolean {
  return setsockopt(fd, SOL_SOCKET, SO_PEEK_OFF, Int32Array.of(START), 4) === 0;
}

/** Bytes read since `startCounting`. @throws EngineError code EBADF. */
export function countedBytes(fd: number): number {
  const value = new Int32Array(1);
  getsockopt(fd, SOL_SOCKET, SO_PEEK_OFF, value, Uint32Array.of(4));
  return START - (value[0] ?? 0);
}

export function stopCounting(fd: number): void {
  setsockopt(fd, SOL_SOCKET, SO_PEEK_OFF, Int32Array.of(-1), 4);
}

/**
 * Asks the kernel to keep at most about so many bytes that were written and not read; if it cannot, nothing changes.
 */
export function limitUnread(fd: number, bytes: number): void {
  setsockopt(fd, SOL_SOCKET, SO_SNDBUF, Int32Array.of(bytes), 4);
}

/**
 * Has the kernel keep about so many bytes of a unix socket that were written and not read: for other sockets it finds
 * the right number itself. Nothing changes for a daemon that is not root. @throws EngineError code EBADF.
 */
export function makeRoom(fd: number, bytes: number): void {
  const domain = new Int32Array(1);
  getsockopt(fd, SOL_SOCKET, SO_DOMAIN, domain, Uint32Array.of(4));
  if (domain[0] === AF_UNIX) setsockopt(fd, SOL_SOCKET, SO_SNDBUFFORCE, Int32Array.of(bytes), 4);
}

/** Bytes that have arrived and that nobody has taken. @throws EngineError code EBADF. */
export function untakenBytes(fd: number): number {
  const value = new Int32Array(1);
  ioctl(fd, BigInt(FIONREAD), value);
  return value[0] ?? 0;
}

/**
 * About how many bytes can be written before the other side has to read; the kernel counts its own overhead in.
 * @throws EngineError code EBADF.
 */
export function writableBytes(fd: number): number {
  const limit = new Int32Array(1);
  getsockopt(fd, SOL_SOCKET, SO_SNDBUF, limit, Uint32Array.of(4));
  const unread = new Int32Array(1);
  ioctl(fd, BigInt(TIOCOUTQ), unread);
  return (limit[0] ?? 0) - (unread[0] ?? 0);
}
