/**
 * The digest of files that a step reads: what they are, who owns them and their content, but not their times. Two trees
 * with the same digest give the same layer but for times. Synchronous, for worker threads.
 */
import { createHash, type Hash } from 'node:crypto';
import { closeSync, constants, fstatSync, openSync, readlinkSync, readSync, type BigIntStats } from 'node:fs';
import { fsPath } from '../../storage/byte-path.js';
import { contentXattrs } from '../../storage/copy-attributes.js';
import { walkTree } from '../../storage/walk-tree.js';
import { getXattr } from '../../sys/files/xattr.js';
import { type KeptDigests, nowNs, unsettledMs } from './kept-digests.js';
import type { LeftOut, SourceFile } from './source-files.js';

const READ = constants.O_RDONLY | constants.O_NOFOLLOW;
const PIECE = Buffer.allocUnsafe(256 << 10);

/** It takes longer to read so large a file in the next build than to wait until its digest can be kept. */
const WORTH_WAITING_BYTES = 64n << 20n;
const MAX_WAIT_MS = 200;
const pause = new Int32Array(new SharedArrayBuffer(4));

export interface DigestOptions {
  /** Owners do not count, because the copy sets them. */
  readonly ignoresOwners: boolean;
  /** Digests of files from earlier builds. */
  readonly known: KeptDigests | undefined;
}

/** Adds a source, with all that is in it, to the hash. */
export function hashSource(hash: Hash, source: SourceFile, leftOut: LeftOut, options: DigestOptions): void {
  if (!source.stat.isDirectory()) {
    hashEntry(hash, source.name, source.at, source.stat, options);
    return;
  }
  hashEntry(hash, '', source.at, source.stat, options);
  const base = source.path === '/' ? '' : `${source.path.slice(1)}/`;
  for (const { path, at, stat } of walkTree(source.at)) {
    if (!leftOut(base + path, stat.isDirectory())) hashEntry(hash, path, at, stat, options);
  }
}

/** Adds a directory alone. */
export function hashDirectory(hash: Hash, { at, stat }: Pick<SourceFile, 'at' | 'stat'>, options: DigestOptions): void {
  hashEntry(hash, '', at, stat, options);
}

/** Each part has its length before it or a fixed one, so that no two lists of files look the same. */
function hashEntry(hash: Hash, path: string, at: string, stat: BigIntStats, options: DigestOptions): void {
  const owner = options.ignoresOwners ? '' : `${stat.uid}:${stat.gid}`;
  const what = stat.isFile()
    ? fileDigest(at, stat, options.known).toString('hex')
    : [stat.isSymbolicLink() ? readlinkSync(fsPath(at), 'latin1') : '', String(stat.rdev), xattrsOf(at)];
  hash.update(`${JSON.stringify([path, String(stat.mode), owner, what])}\n`);
}

/** Returns the digest of the content and the extended attributes of a file. */
function fileDigest(at: string, stat: BigIntStats, known: KeptDigests | undefined): Buffer {
  const found = known?.find(stat);
  if (found !== undefined) return found;
  if (known && stat.size >= WORTH_WAITING_BYTES) settle(stat.ctimeNs);
  const fd = openSync(fsPath(at), READ);
  try {
    const before = nowNs();
    // The name may be another file's by now.
    const opened = known && fstatSync(fd, { bigint: true });
    const hash = contentHash(at);
    for (let length = readSync(fd, PIECE); length > 0; length = readSync(fd, PIECE))
      hash.update(PIECE.subarray(0, length));
    const digest = hash.digest();
    if (opened) known.note(opened, before, digest);
    return digest;
  } finally {
    closeSync(fd);
  }
}

/** Waits until a change of a file would show, unless its file system keeps whole seconds. */
function settle(ctimeNs: bigint): void {
  const ms = unsettledMs(ctimeNs);
  if (ms > 0 && ms <= MAX_WAIT_MS) Atomics.wait(pause, 0, 0, ms);
}

/** Returns the hash of a file, which has its extended attributes already: its content is to come. */
export function contentHash(at: string): Hash {
  return createHash('sha256').update(`${JSON.stringify(xattrsOf(at))}\n`);
}

function xattrsOf(at: string): readonly (readonly [name: string, value: string])[] {
  return contentXattrs(at)
    .sort()
    .map((name) => [name, getXattr(fsPath(at), name)?.toString('base64') ?? '']);
}
