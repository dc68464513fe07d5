/** Worker task: writes the files that another thread reads; see file-line.ts. */
import { closeSync, constants, fchmodSync, fchownSync, openSync, writeSync, type BigIntStats } from 'node:fs';
import { fsPath } from '../../storage/byte-path.js';
import { storageError } from '../../storage/storage-error.js';
import { setOpenFileTimes } from '../../sys/files/inode.js';
import { quickStatOpen } from '../../sys/files/quick-stat.js';
import { type LineFile, takeFiles } from './file-line.js';

const CREATE = constants.O_WRONLY | constants.O_CREAT | constants.O_EXCL;
const NS_PER_S = 1_000_000_000n;

/** @throws EngineError as `storageError`. */
export function writeLine({ memory }: { readonly memory: SharedArrayBuffer }): void {
  try {
    takeFiles(memory, writeFile);
  } catch (error) {
    throw storageError(error, 'copying files into an image');
  }
}

/** Returns whether the file has become what it should be, as far as a tar tells. */
function writeFile(file: LineFile, content: Buffer): boolean {
  const fd = openSync(fsPath(file.path), CREATE, file.mode & 0o777);
  try {
    for (let at = 0; at < content.length;) at += writeSync(fd, content, at, content.length - at);
    setOpenFileTimes(fd, ...file.time);
    const made = quickStatOpen(fd);
    if (isLike(made, file, content)) return true;
    // A change of the owner takes bits of the mode away.
    fchownSync(fd, file.uid, file.gid);
    fchmodSync(fd, file.mode);
    return isLike(quickStatOpen(fd), file, content);
  } finally {
    closeSync(fd);
  }
}

function isLike(made: BigIntStats, { uid, gid, mode, time }: LineFile, content: Buffer): boolean {
  return (
    Number(made.mode & 0o7777n) === mode &&
    Number(made.uid) === uid &&
    Number(made.gid) === gid &&
    Number(made.size) === content.length &&
    made.mtimeNs === BigInt(time[0]) * NS_PER_S + BigInt(time[1])
  );
}
