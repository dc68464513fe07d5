/** Sets the mode of a file in a directory that others may change. */
import { chmodSync, closeSync, constants, fstatSync, openSync } from 'node:fs';
import { internal } from '../errors/engine-error.js';
import { O_PATH } from '../sys/files/open-in-root.js';

/**
 * Sets the mode by a descriptor that stands for the file, because chmod would follow a link that took its name.
 * @throws EngineError code EEXIST when one has.
 */
export function chmodNode(at: string | Buffer, mode: number): void {
  const fd = openSync(at, O_PATH | constants.O_NOFOLLOW);
  try {
    if (fstatSync(fd).isSymbolicLink()) throw internal('the file was replaced while it was made', { code: 'EEXIST' });
    chmodSync(`/proc/self/fd/${fd}`, mode);
  } finally {
    closeSync(fd);
  }
}
