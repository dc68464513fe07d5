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
  /** The JSON of the statement before its list of files, and after it. */
  readonly head: string;
  readonly tail: string;
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
    writeAll(target, `${text}${isFirst ? '' : '\n  '}${tail}`);
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

function writeAll(fd: number, text: string): void {
  const bytes = Buffer.from(text);
  for (let at = 0; at < bytes.length;) at += writeSync(fd, bytes, at);
}
