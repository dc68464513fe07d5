/**
 * Worker task: writes a statement about all files of a result, for clients that get the files and no image. The files
 * may be many, so that neither they nor the statement are ever in memory as a whole.
 */
import { createHash } from 'node:crypto';
import { closeSync, constants, openSync, readSync, writeSync } from 'node:fs';
import { fsPath, toBytePath, toText } from '../../storage/byte-path.js';
import { walkTree } from '../../storage/walk-tree.js';
import { goJson } from '../../text/go-json.js';

export interface AttestFilesInput {
  /** A directory that nobody changes meanwhile. */
  readonly root: string;
  /** The JSON of the statement before its list of files. */
  readonly head: string;
  /** Follows the list: texts, and files that have a part of it. */
  readonly tail: readonly (string | { readonly path: string })[];
  /** The file that is made. */
  readonly path: string;
}

const READ = constants.O_RDONLY | constants.O_NOFOLLOW;
const WRITE = constants.O_WRONLY | constants.O_CREAT | constants.O_EXCL;
const PIECE_BYTES = 256 << 10;

export function attestFiles({ root, head, tail, path }: AttestFilesInput): void {
  const target = openSync(path, WRITE, 0o600);
  const piece = Buffer.allocUnsafe(PIECE_BYTES);
  try {
    let text = head;
    let isFirst = true;
    for (const { path: name, at, stat } of walkTree(toBytePath(root))) {
      if (!stat.isFile()) continue;
      const subject = goJson({ name: toText(name), digest: { sha256: digestOf(at, piece) } });
      text += `${isFirst ? '' : ','}\n${subject.replaceAll(/^/gm, '    ')}`;
      isFirst = false;
      if (text.length < PIECE_BYTES) continue;
      writeAll(target, text);
      text = '';
    }
    writeAll(target, `${text}${isFirst ? '' : '\n  '}`);
    for (const part of tail) {
      if (typeof part === 'string') writeAll(target, part);
      else copyFile(part.path, target, piece);
    }
  } finally {
    closeSync(target);
  }
}

function digestOf(at: string, piece: Buffer): string {
  const hash = createHash('sha256');
  const fd = openSync(fsPath(at), READ);
  try {
    for (let length = readSync(fd, piece); length > 0; length = readSync(fd, piece))
      hash.update(piece.subarray(0, length));
  } finally {
    closeSync(fd);
  }
  return hash.digest('hex');
}

function copyFile(from: string, target: number, piece: Buffer): void {
  const fd = openSync(from, READ);
  try {
    for (let length = readSync(fd, piece); length > 0; length = readSync(fd, piece))
      writeAll(target, piece.subarray(0, length));
  } finally {
    closeSync(fd);
  }
}

function writeAll(fd: number, content: string | Buffer): void {
  const bytes = typeof content === 'string' ? Buffer.from(content) : content;
  for (let at = 0; at < bytes.length;) at += writeSync(fd, bytes, at);
}
