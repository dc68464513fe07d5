/** The datagram socket of sd_notify(3). Node has no unix datagrams. */
import { isEngineError } from '../../errors/engine-error.js';
import { closeFd } from '../files/fd.js';
import { sendDescriptors } from './descriptor-messages.js';
import { AF_UNIX, MAX_UNIX_PATH_BYTES, SOCK_CLOEXEC, SOCK_DGRAM, socket, unixAddress } from './socket-calls.js';

/**
 * Sends one datagram to a unix socket, which has to be there. @param path absolute, or `@name` for an abstract one.
 * @param fds descriptors that go with it.
 * @param waitMs synchronous wait, at most, for a receiver whose queue is full: of ten messages, where nobody has set
 *   `net.unix.max_dgram_qlen`.
 * @throws EngineError code ENOENT, ECONNREFUSED, EAGAIN when its queue is full.
 */
export function sendUnixDatagram(path: string, text: string, fds: readonly number[], waitMs: number): void {
  const name = path.startsWith('@') ? `\0${path.slice(1)}` : path;
  const address = unixAddress(name).subarray(0, 2 + MAX_UNIX_PATH_BYTES);
  const fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  try {
    const giveUpAt = performance.now() + waitMs;
    while (!hasSent(fd, Buffer.from(text), fds, address, performance.now() >= giveUpAt)) pause();
  } finally {
    closeFd(fd);
  }
}

/** Returns false when the queue is full, unless this is the last try. */
function hasSent(fd: number, bytes: Buffer, fds: readonly number[], address: Buffer, isLast: boolean): boolean {
  try {
    sendDescriptors(fd, bytes, fds, address);
    return true;
  } catch (error) {
    if (isLast || !isEngineError(error) || error.code !== 'EAGAIN') throw error;
    return false;
  }
}

function pause(): void {
  Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, 1);
}
