/** The datagram socket of sd_notify(3). Node has no unix datagrams. */
import { closeFd } from '../files/fd.js';
import { sendDescriptors } from './descriptor-messages.js';
import { AF_UNIX, MAX_UNIX_PATH_BYTES, SOCK_CLOEXEC, SOCK_DGRAM, socket, unixAddress } from './socket-calls.js';

/**
 * Sends one datagram to a unix socket, which has to be there. @param path absolute, or `@name` for an abstract one.
 * @param fds descriptors that go with it.
 * @throws EngineError code ENOENT, ECONNREFUSED, EAGAIN when its queue is full.
 */
export function sendUnixDatagram(path: string, text: string, fds: readonly number[] = []): void {
  const name = path.startsWith('@') ? `\0${path.slice(1)}` : path;
  const address = unixAddress(name).subarray(0, 2 + MAX_UNIX_PATH_BYTES);
  const fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  try {
    sendDescriptors(fd, Buffer.from(text), fds, address);
  } finally {
    closeFd(fd);
  }
}
