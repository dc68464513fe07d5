/** Opens files of a tree that a container may be changing at this moment. Synchronous, for worker threads. */
import { closeSync, constants, fstatSync, openSync, type BigIntStats } from 'node:fs';
import { O_PATH } from '../sys/files/open-in-root.js';
import { fsPath } from './byte-path.js';

const GONE = new Set(['ENOENT', 'ENOTDIR', 'ELOOP', 'ENXIO']);

export interface OpenFile {
  readonly fd: number;
  readonly stat: BigIntStats;
}

/**
 * Opens a regular file for reading; undefined when there is none any more. What is there is looked at before it is
 * opened: opening a device has effects, on the host too.
 * @param at byte string whose last component alone the container can change; a link there is not followed.
 */
export function openRegular(at: string): OpenFile | undefined {
  let place: number;
  try {
    place = openSync(fsPath(at), O_PATH | constants.O_NOFOLLOW);
  } catch (error) {
    if (GONE.has((error as NodeJS.ErrnoException).code ?? '')) return undefined;
    throw error;
  }
  try {
    const stat = fstatSync(place, { bigint: true });
    return stat.isFile()
      ? { fd: openSync(`/proc/self/fd/${place}`, constants.O_RDONLY | constants.O_NONBLOCK), stat }
      : undefined;
  } finally {
    closeSync(place);
  }
}
