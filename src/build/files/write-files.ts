/**
 * Worker task: writes many small files at once. To send the calls for each of them to a thread, one by one, costs more
 * than the calls.
 */
import { closeSync, fchmodSync, fchownSync, openSync, writeSync } from 'node:fs';
import { storageError } from '../../storage/storage-error.js';
import { setOpenFileTimes } from '../../sys/files/inode.js';

export interface SmallFile {
  /** Is free, in a directory that nobody else changes. */
  readonly path: string;
  readonly uid: number;
  readonly gid: number;
  readonly permissions: number;
  /** The last change: seconds since 1970, and nanoseconds. */
  readonly time: readonly [seconds: number, nanoseconds: number];
  readonly sizeBytes: number;
}

export interface FileBatch {
  readonly files: readonly SmallFile[];
  /** The bytes of the files, one after the other. */
  readonly bytes: Uint8Array;
}

export type WriteFiles = (batch: FileBatch) => Promise<void>;

/** A file has its time when it is complete, which tells it from a broken one. @throws EngineError as `storageError`. */
export function writeFiles({ files, bytes }: FileBatch): void {
  let at = 0;
  try {
    for (const file of files) writeFile(file, bytes.subarray(at, (at += file.sizeBytes)));
  } catch (error) {
    throw storageError(error, 'writing files of a client');
  }
}

function writeFile({ path, uid, gid, permissions, time }: SmallFile, bytes: Uint8Array): void {
  const fd = openSync(path, 'wx', 0o600);
  try {
    for (let at = 0; at < bytes.length;) at += writeSync(fd, bytes, at);
    if (uid !== 0 || gid !== 0) fchownSync(fd, uid, gid);
    fchmodSync(fd, permissions);
    setOpenFileTimes(fd, ...time);
  } finally {
    closeSync(fd);
  }
}
