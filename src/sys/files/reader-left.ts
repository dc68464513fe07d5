/** Tells whether anybody can still read what is written to a descriptor, without a byte being written. */
import { libc } from '../ffi/libc.js';

// poll.h
const POLLERR = 0x8;
const POLLHUP = 0x10;

const poll = libc.checked<[fds: Uint8Array, count: number, timeoutMs: number]>(
  'poll',
  'int poll(_Inout_ uint8_t *fds, unsigned long count, int timeoutMs)',
);

/** Returns true when the reading end of the pipe, or the other end of the socket, is closed. */
export function hasReaderLeft(fd: number): boolean {
  // struct pollfd: the descriptor, what is asked for, what is so. Errors are told without being asked for.
  const asked = Buffer.alloc(8);
  asked.writeInt32LE(fd, 0);
  poll(asked, 1, 0);
  return (asked.readInt16LE(6) & (POLLERR | POLLHUP)) !== 0;
}
