/** The writable layer of a container as the tar of an image layer. Synchronous, for worker threads. */
import { closeSync, constants, fstatSync, openSync, readlinkSync, readSync, type BigIntStats } from 'node:fs';
import { getXattr } from '../../sys/xattr.js';
import { fsPath, toBytePath } from '../byte-path.js';
import { contentXattrs, deviceMajor, deviceMinor } from '../copy-attributes.js';
import { isOpaque, isWhiteout } from '../overlay2/merged-view.js';
import { walkTree, type WalkedEntry } from '../walk-tree.js';
import { encodeHeader, END_OF_ARCHIVE, padding, type EntryHeader } from './header-writer.js';

const CHUNK_BYTES = 1024 * 1024;
const OPEN = constants.O_RDONLY | constants.O_NOFOLLOW | constants.O_NONBLOCK;
const WHITEOUT = '.wh.';

/**
 * The bytes of the tar, deterministic for a given tree: names in the order of their bytes, times cut to seconds as the
 * Docker engine cuts them. A chunk is valid until the next one is asked for. Sockets are left out, and so are files
 * whose own names read as whiteouts. What changes during the walk is in the tar as it was at some moment.
 */
export function* diffTar(upperDir: string): Generator<Buffer> {
  const firstNames = new Map<bigint, string>();
  const buffer = Buffer.allocUnsafeSlow(CHUNK_BYTES);
  for (const entry of walkTree(toBytePath(upperDir))) {
    const { path, stat } = entry;
    const base = path.slice(path.lastIndexOf('/') + 1);
    if (stat.isSocket() || base.startsWith(WHITEOUT)) continue;
    if (isWhiteout(stat)) {
      const name = path.slice(0, path.length - base.length) + WHITEOUT + base;
      yield encodeHeader({ ...common(stat), type: '0', name, mode: 0o600 });
      continue;
    }
    const first = stat.nlink > 1n && !stat.isDirectory() ? firstNames.get(stat.ino) : undefined;
    if (first !== undefined) {
      yield encodeHeader({ ...common(stat), type: '1', name: path, linkName: first });
      continue;
    }
    if (stat.nlink > 1n && !stat.isDirectory()) firstNames.set(stat.ino, path);
    if (stat.isFile()) yield* fileEntry(entry, buffer);
    else yield* otherEntry(entry);
  }
  yield END_OF_ARCHIVE;
}

function* otherEntry({ path, at, stat }: WalkedEntry): Generator<Buffer> {
  const header = { ...common(stat), name: path, xattrs: readXattrs(at) };
  if (stat.isDirectory()) {
    yield encodeHeader({ ...header, type: '5', name: `${path}/` });
    if (isOpaque(at)) yield encodeHeader({ ...common(stat), type: '0', name: `${path}/.wh..wh..opq` });
  } else if (stat.isSymbolicLink()) {
    yield encodeHeader({ ...header, type: '2', linkName: readlinkSync(fsPath(at), 'latin1') });
  } else if (stat.isFIFO()) {
    yield encodeHeader({ ...header, type: '6' });
  } else {
    const type = stat.isCharacterDevice() ? '3' : '4';
    yield encodeHeader({ ...header, type, deviceMajor: deviceMajor(stat.rdev), deviceMinor: deviceMinor(stat.rdev) });
  }
}

function* fileEntry({ path, at }: WalkedEntry, buffer: Buffer): Generator<Buffer> {
  const fd = openFile(at);
  if (fd === undefined) return;
  try {
    // The size must be that of the file that is read, whatever has its name meanwhile.
    const stat = fstatSync(fd, { bigint: true });
    if (!stat.isFile()) return;
    const sizeBytes = Number(stat.size);
    yield encodeHeader({ ...common(stat), type: '0', name: path, sizeBytes, xattrs: readXattrs(at) });
    for (let left = sizeBytes; left > 0; ) {
      let length = readSync(fd, buffer, 0, Math.min(left, buffer.length), null);
      // A file that was cut meanwhile: the header is out, so zeros take the place of the rest.
      if (length === 0) {
        length = Math.min(left, buffer.length);
        buffer.fill(0, 0, length);
      }
      left -= length;
      yield buffer.subarray(0, length);
    }
    yield padding(sizeBytes);
  } finally {
    closeSync(fd);
  }
}

/** Undefined when the file was removed or replaced meanwhile. */
function openFile(at: string): number | undefined {
  try {
    return openSync(fsPath(at), OPEN);
  } catch (error) {
    const { code } = error as NodeJS.ErrnoException;
    if (code === 'ENOENT' || code === 'ELOOP' || code === 'ENXIO') return undefined;
    throw error;
  }
}

function common(stat: BigIntStats): Pick<EntryHeader, 'mode' | 'uid' | 'gid' | 'sizeBytes' | 'mtimeSeconds'> {
  const { mtimeNs } = stat;
  const seconds = mtimeNs / 1_000_000_000n - (mtimeNs < 0n && mtimeNs % 1_000_000_000n !== 0n ? 1n : 0n);
  return { mode: Number(stat.mode & 0o7777n), uid: Number(stat.uid), gid: Number(stat.gid), sizeBytes: 0, mtimeSeconds: Number(seconds) };
}

function readXattrs(at: string): [string, Buffer][] {
  return contentXattrs(at).flatMap((name) => {
    const value = getXattr(fsPath(at), name);
    return value ? [[name, value] as [string, Buffer]] : [];
  });
}
