/** Compares two files whose attributes are equal. Synchronous, for worker threads. Paths are byte strings. */
import { closeSync, readlinkSync, readSync, type BigIntStats } from 'node:fs';
import { getXattr } from '../../sys/files/xattr.js';
import { fsPath } from '../byte-path.js';
import { contentXattrs } from '../copy-attributes.js';
import { openRegular } from '../open-regular.js';

const PIECE_BYTES = 1 << 18;

/** @param stat is that of `a`. */
export function isSameContent(a: string, b: string, stat: BigIntStats): boolean {
  if (!hasSameXattrs(a, b)) return false;
  if (stat.isSymbolicLink()) return readlinkSync(fsPath(a), 'buffer').equals(readlinkSync(fsPath(b), 'buffer'));
  return !stat.isFile() || hasSameBytes(a, b);
}

function hasSameXattrs(a: string, b: string): boolean {
  const names = contentXattrs(a);
  if (names.sort().join('\0') !== contentXattrs(b).sort().join('\0')) return false;
  return names.every((name) => {
    const [one, other] = [getXattr(fsPath(a), name), getXattr(fsPath(b), name)];
    return one && other && one.equals(other);
  });
}

function hasSameBytes(a: string, b: string): boolean {
  const fds: number[] = [];
  try {
    for (const path of [a, b]) {
      const file = openRegular(path);
      // A container has put something else in the place of the file.
      if (file === undefined) return false;
      fds.push(file.fd);
    }
    const [one = Buffer.alloc(0), other = Buffer.alloc(0)] = fds.map(() => Buffer.allocUnsafe(PIECE_BYTES));
    for (;;) {
      const [read = 0, too = 0] = [one, other].map((piece, i) => readSync(fds[i] ?? -1, piece));
      if (read !== too || !one.subarray(0, read).equals(other.subarray(0, read))) return false;
      if (read === 0) return true;
    }
  } finally {
    for (const fd of fds) closeSync(fd);
  }
}
