/**
 * Descriptors that two threads give each other or keep without a Node object: when one of the threads fails, the other
 * one knows what it left.
 */
import { closeFd } from './fd.js';

/** The kernel has no more for a process unless an administrator says so. Pages of zeros take no memory. */
const MAX_FDS = 1 << 20;

export class SharedFds {
  /** @param table one byte for each number, in memory that threads share. */
  constructor(readonly table = new Uint8Array(new SharedArrayBuffer(MAX_FDS))) {}

  /** Notes a descriptor that has no other owner now. */
  add(fd: number): void {
    if (fd < this.table.length) Atomics.store(this.table, fd, 1);
  }

  /** Call it just before somebody owns the descriptor, or closes it. */
  remove(fd: number): void {
    if (fd < this.table.length) Atomics.store(this.table, fd, 0);
  }

  /** Closes all that are noted, when the other thread uses none of them any more. */
  closeAll(): void {
    for (let fd = this.table.indexOf(1); fd >= 0; fd = this.table.indexOf(1, fd + 1)) {
      this.remove(fd);
      closeFd(fd);
    }
  }
}
