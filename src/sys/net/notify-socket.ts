/** The datagram socket of sd_notify(3). Node has no unix datagrams. */
import { endianness } from 'node:os';
import { closeFd } from '../files/fd.js';
import { libc } from '../ffi/libc.js';
import { MAX_UNIX_PATH_BYTES } from './listen-socket.js';

// linux/socket.h; the same on every architecture that we have binaries for.
const AF_UNIX = 1;
const SOCK_DGRAM = 2;
const SOCK_CLOEXEC = 0o2000000;
const MSG_DONTWAIT = 0x40;
const MSG_NOSIGNAL = 0x4000;

const socket = libc.checked<[domain: number, type: number, protocol: number]>(
  'socket',
  'int socket(int domain, int type, int protocol)',
);
const sendto = libc.checked<
  [fd: number, bytes: Uint8Array, length: number, flags: number, address: Uint8Array, addressLength: number]
>(
  'sendto',
  'int64_t sendto(int fd, const void *bytes, size_t length, int flags, const void *address, uint32_t addressLength)',
);

/**
 * Sends one datagram to a unix socket, which has to be there. @param path absolute, or `@name` for an abstract one.
 * @throws EngineError code ENOENT, ECONNREFUSED, EAGAIN when its queue is full.
 */
export function sendUnixDatagram(path: string, text: string): void {
  const name = Buffer.from(path.startsWith('@') ? `\0${path.slice(1)}` : path).subarray(0, MAX_UNIX_PATH_BYTES);
  const family = Buffer.alloc(2);
  if (endianness() === 'LE') family.writeUInt16LE(AF_UNIX);
  else family.writeUInt16BE(AF_UNIX);
  const address = Buffer.concat([family, name]);
  const bytes = Buffer.from(text);
  const fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  try {
    sendto(fd, bytes, bytes.length, MSG_DONTWAIT | MSG_NOSIGNAL, address, address.length);
  } finally {
    closeFd(fd);
  }
}
