/**
 * The digest of files that a step reads: what they are, who owns them and their content, but not their times. Two trees
 * with the same digest give the same layer but for times. Synchronous, for worker threads.
 */
import { createHash, type Hash } from 'node:crypto';
import { closeSync, constants, openSync, readlinkSync, readSync, type BigIntStats } from 'node:fs';
import { fsPath } from '../../storage/byte-path.js';
import { contentXattrs } from '../../storage/copy-attributes.js';
import { walkTree } from '../../storage/walk-tree.js';
import { getXattr } from '../../sys/files/xattr.js';
import type { LeftOut, SourceFile } from './source-files.js';

const READ = constants.O_RDONLY | constants.O_NOFOLLOW;
const PIECE = Buffer.allocUnsafe(256 << 10);

export interface DigestOptions {
  /** Owners do not count, because the copy sets them. */
  readonly ignoresOwners: boolean;
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

/** Each part has its length before it, so that no two lists of files look the same. */
function hashEntry(hash: Hash, path: string, at: string, stat: BigIntStats, { ignoresOwners }: DigestOptions): void {
  const isFile = stat.isFile();
  const link = stat.isSymbolicLink() ? readlinkSync(fsPath(at), 'latin1') : '';
  const owner = ignoresOwners ? '' : `${stat.uid}:${stat.gid}`;
  const xattrs = contentXattrs(at)
    .sort()
    .map((name) => [name, getXattr(fsPath(at), name)?.toString('base64') ?? '']);
  const size = isFile ? String(stat.size) : '';
  hash.update(`${JSON.stringify([path, String(stat.mode), owner, size, link, String(stat.rdev), xattrs])}\n`);
  if (isFile) hashContent(hash, at);
}

function hashContent(hash: Hash, at: string): void {
  const fd = openSync(fsPath(at), READ);
  try {
    for (let length = readSync(fd, PIECE); length > 0; length = readSync(fd, PIECE))
      hash.update(PIECE.subarray(0, length));
  } finally {
    closeSync(fd);
  }
}

export const newContentHash = (): Hash => createHash('sha256');
