/** Opens files of a tree that a container may be changing at this moment. Synchronous, for worker threads. */
import { closeSync, constants, fstatSync, openSync, type BigIntStats } from 'node:fs';
import { O_PATH } from '../sys/files/open-in-root.js';
import { fsPath, toText } from './byte-path.js';

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

/** Does the same for a file that was there before: a container may have put a device in its place. @throws ENOENT. */
export function requireRegular(at: string): OpenFile {
  const file = openRegular(at);
  if (file) return file;
  throw Object.assign(new Error(`${JSON.stringify(toText(at))} is no file any more`), { code: 'ENOENT' });
}

/**
 * Opens a file in a tree that nobody changes, where `stat` of a regular file says all about it. What is there is not
 * looked at once more, which takes half of the system calls away.
 */
export function openStill(at: string, stat: BigIntStats): OpenFile {
  return { fd: openSync(fsPath(at), constants.O_RDONLY | constants.O_NONBLOCK | constants.O_NOFOLLOW), stat };
}
