/**
 * Worker task: writes many small files at once. To send the calls for each of them to a thread, one by one, costs more
 * than the calls.
 */
import { closeSync, fchmodSync, fchownSync, fstatSync, openSync, writeSync } from 'node:fs';
import { toBytePath } from '../../storage/byte-path.js';
import { storageError } from '../../storage/storage-error.js';
import { setOpenFileTimes } from '../../sys/files/inode.js';
import { contentHash } from './content-digest.js';
import { recordOf } from './kept-digests.js';

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
  /** The bytes of the files, one after the other; what follows the last of them is none. */
  readonly bytes: Uint8Array;
  /** The digests of the files are wanted, as kept-digests.ts has them. */
  readonly isDigested: boolean;
}

/** Resolves with the records of the files, if they are wanted. */
export type WriteFiles = (batch: FileBatch) => Promise<Uint8Array>;

/**
 * A file has its time when it is complete, which tells it from a broken one. The digests are made while the bytes are
 * here: to read the files again would take longer.
 * @throws EngineError as `storageError`.
 */
export function writeFiles({ files, bytes, isDigested }: FileBatch): Uint8Array {
  let at = 0;
  const records: Buffer[] = [];
  try {
    for (const file of files) {
      const record = writeFile(file, bytes.subarray(at, (at += file.sizeBytes)), isDigested);
      if (record) records.push(record);
    }
    return Buffer.concat(records);
  } catch (error) {
    throw storageError(error, 'writing files of a client');
  }
}

function writeFile(
  { path, uid, gid, permissions, time }: SmallFile,
  bytes: Uint8Array,
  isDigested: boolean,
): Buffer | undefined {
  const fd = openSync(path, 'wx', 0o600);
  try {
    for (let at = 0; at < bytes.length;) at += writeSync(fd, bytes, at);
    if (uid !== 0 || gid !== 0) fchownSync(fd, uid, gid);
    fchmodSync(fd, permissions);
    setOpenFileTimes(fd, ...time);
    if (!isDigested) return undefined;
    return recordOf(fstatSync(fd, { bigint: true }), contentHash(toBytePath(path)).update(bytes).digest());
  } finally {
    closeSync(fd);
  }
}
