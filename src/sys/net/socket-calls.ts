/** The system calls and numbers that every kind of socket of ours begins with. */
import { endianness } from 'node:os';
import { libc } from '../ffi/libc.js';

// linux/socket.h; the same on every architecture that we have binaries for.
export const AF_UNIX = 1;
export const SOCK_STREAM = 1;
export const SOCK_DGRAM = 2;
export const SOCK_SEQPACKET = 5;
export const SOCK_NONBLOCK = 0o4000;
export const SOCK_CLOEXEC = 0o2000000;
export const SOL_SOCKET = 1;

/** sockaddr_un.sun_path, without the final NUL (unix(7)). */
export const MAX_UNIX_PATH_BYTES = 107;

export const socket = libc.checked<[domain: number, type: number, protocol: number]>(
  'socket',
  'int socket(int domain, int type, int protocol)',
);
export const bind = libc.checked<[fd: number, address: Uint8Array, length: number]>(
  'bind',
  'int bind(int fd, const void *address, uint32_t length)',
);
export const listen = libc.checked<[fd: number, backlog: number]>('listen', 'int listen(int fd, int backlog)');

/** A sockaddr_un. @param name what follows the family: a path with NUL behind it, or NUL and an abstract name. */
export function unixAddress(name: string): Buffer {
  const address = Buffer.from(`..${name}`);
  if (endianness() === 'LE') address.writeUInt16LE(AF_UNIX);
  else address.writeUInt16BE(AF_UNIX);
  return address;
}
