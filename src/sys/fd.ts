/** File descriptors that Node keeps to itself: duplicating and closing them. */
import { libc } from './libc.js';

// linux/fcntl.h; the same on every architecture.
const F_DUPFD_CLOEXEC = 1030;

const fcntl = libc.checked<[fd: number, command: number, argument: number]>(
  'fcntl',
  'int fcntl(int fd, int command, int argument)',
);
const close = libc.checked<[fd: number]>('close', 'int close(int fd)');

/**
 * A new descriptor (above stderr, closed on exec) for the same open file. The caller closes it.
 * @throws EngineError code EBADF, EMFILE.
 */
export function duplicateFd(fd: number): number {
  return fcntl(fd, F_DUPFD_CLOEXEC, 3);
}

/** Closes a descriptor that no Node object owns. @throws EngineError code EBADF. */
export function closeFd(fd: number): void {
  close(fd);
}
