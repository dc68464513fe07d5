/** The datagram socket of sd_notify(3). Node has no unix datagrams. */
import { closeFd } from '../files/fd.js';
import { libc } from '../ffi/libc.js';
import { AF_UNIX, MAX_UNIX_PATH_BYTES, SOCK_CLOEXEC, SOCK_DGRAM, socket, unixAddress } from './socket-calls.js';

// linux/socket.h; the same on every architecture that we have binaries for.
const MSG_DONTWAIT = 0x40;
const MSG_NOSIGNAL = 0x4000;

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
  const name = path.startsWith('@') ? `\0${path.slice(1)}` : path;
  const address = unixAddress(name).subarray(0, 2 + MAX_UNIX_PATH_BYTES);
  const bytes = Buffer.from(text);
  const fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  try {
    sendto(fd, bytes, bytes.length, MSG_DONTWAIT | MSG_NOSIGNAL, address, address.length);
  } finally {
    closeFd(fd);
  }
}
