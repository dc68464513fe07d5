/** FIFOs on the event loop: opened without blocking and read as sockets, never on the thread pool. */
import { closeSync, constants, openSync } from 'node:fs';
import { Socket } from 'node:net';
import { libc } from '../../sys/ffi/libc.js';

const mkfifo = libc.checked<[path: string, mode: number]>('mkfifo', 'int mkfifo(const char *path, uint32_t mode)');

/** Creates a FIFO that only the owner may open. @throws EngineError code EEXIST, ENOSPC and such. */
export function makeFifo(path: string): void {
  mkfifo(path, 0o600);
}

/**
 * Opens the reading end. It ends when the last writer has gone, but not before there was a writer.
 * @throws the error of open(2) with its `code`, such as ENOENT.
 */
export function openFifoReader(path: string): Socket {
  return socketFor(openSync(path, constants.O_RDONLY | constants.O_NONBLOCK), { readable: true, writable: false });
}

/** Opens the reading end of a FIFO whose writers come and go. It does not end. @throws the error of open(2). */
export function openOwnFifo(path: string): Socket {
  return socketFor(openSync(path, constants.O_RDWR | constants.O_NONBLOCK), { readable: true, writable: false });
}

/** Opens the writing end. @throws the error of open(2); code ENXIO while nobody has it open for reading. */
export function openFifoWriter(path: string): Socket {
  return socketFor(openSync(path, constants.O_WRONLY | constants.O_NONBLOCK), { readable: false, writable: true });
}

function socketFor(fd: number, direction: { readable: boolean; writable: boolean }): Socket {
  try {
    const socket = new Socket({ fd, ...direction });
    // The broken pipe must not end the daemon if there is no other listener; 'close' follows.
    socket.on('error', () => {});
    return socket;
  } catch (error) {
    closeSync(fd);
    throw error;
  }
}
