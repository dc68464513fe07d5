/**
 * Datagram sockets of the unix domain, which Node does not have: how a machine's own syslog and journal are reached.
 */
import { setTimeout as sleep } from 'node:timers/promises';
import { invalid, isEngineError } from '../../errors/engine-error.js';
import { closeFd } from '../files/fd.js';
import { libc } from '../ffi/libc.js';
import {
  AF_UNIX,
  MAX_UNIX_PATH_BYTES,
  SOCK_CLOEXEC,
  SOCK_DGRAM,
  SOCK_NONBLOCK,
  socket,
  unixAddress,
} from './socket-calls.js';

// linux/socket.h; the same on every architecture that we have binaries for.
const MSG_NOSIGNAL = 0x4000;
/** A receiver that is behind has a full queue; it is asked again this often. */
const BUSY_MS = 5;

const connect = libc.checked<[fd: number, address: Uint8Array, length: number]>(
  'connect',
  'int connect(int fd, const void *address, uint32_t length)',
);
const send = libc.checked<[fd: number, data: Uint8Array, length: number, flags: number]>(
  'send',
  'long send(int fd, const void *data, size_t length, int flags)',
);

export class UnixDatagram {
  #fd: number;

  private constructor(fd: number) {
    this.#fd = fd;
  }

  /** Connects to a socket file. @throws EngineError code ENOENT, ECONNREFUSED, EPROTOTYPE (a stream socket), EACCES. */
  static open(path: string): UnixDatagram {
    if (Buffer.byteLength(path) > MAX_UNIX_PATH_BYTES)
      throw invalid(`${path} is longer than ${MAX_UNIX_PATH_BYTES} bytes`, { code: 'ENAMETOOLONG' });
    const fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    try {
      const address = unixAddress(`${path}\0`);
      connect(fd, address, address.length);
      return new UnixDatagram(fd);
    } catch (error) {
      closeFd(fd);
      throw error;
    }
  }

  /** Sends one datagram, as soon as the receiver has room for it. @throws EngineError code ECONNREFUSED, EMSGSIZE. */
  async send(data: Buffer, signal: AbortSignal): Promise<void> {
    for (;;) {
      signal.throwIfAborted();
      try {
        send(this.#fd, data, data.length, MSG_NOSIGNAL);
        return;
      } catch (error) {
        if (!isEngineError(error) || (error.code !== 'EAGAIN' && error.code !== 'ENOBUFS')) throw error;
      }
      await sleep(BUSY_MS, undefined, { signal });
    }
  }

  /** Closes the socket. Idempotent. */
  close(): void {
    if (this.#fd >= 0) closeFd(this.#fd);
    this.#fd = -1;
  }
}
