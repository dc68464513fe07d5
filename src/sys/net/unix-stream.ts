/** Connections to sockets in the file system whose descriptors can be given away, which Node's cannot. */
import { closeFd } from '../files/fd.js';
import { libc } from '../ffi/libc.js';
import { AF_UNIX, SOCK_CLOEXEC, SOCK_NONBLOCK, SOCK_STREAM, socket, unixAddress } from './socket-calls.js';

const connect = libc.checked<[fd: number, address: Uint8Array, length: number]>(
  'connect',
  'int connect(int fd, const void *address, uint32_t length)',
);

/**
 * Connects to a listening socket, without waiting. The caller closes the descriptor, which is not inherited and does
 * not block.
 * @throws EngineError code ENOENT, ECONNREFUSED, EAGAIN when too many wait for the other side, EMFILE.
 */
export function connectUnix(path: string): number {
  const fd = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  try {
    const address = unixAddress(`${path}\0`);
    connect(fd, address, address.length);
    return fd;
  } catch (error) {
    closeFd(fd);
    throw error;
  }
}
