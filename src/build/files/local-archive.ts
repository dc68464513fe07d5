/** Archives that ADD unpacks: known by their content, whatever their name. For worker threads. */
import { closeSync, constants, openSync, readSync } from 'node:fs';
import type { IdMaps, Owner } from '../../ports/id-maps.js';
import { fsPath } from '../../storage/byte-path.js';
import { BLOCK_SIZE } from '../../storage/tar/header.js';
import { TreeExtractor } from '../../storage/tar/tree-extractor.js';
import { createDecompressor } from '../../workers/decompress.js';

const PIECE_BYTES = 256 << 10;
/** A tar begins within the first bytes of what is decompressed. */
const PROBE_BYTES = 64 << 10;

export interface ArchiveTarget {
  readonly rootFd: number;
  /** An existing directory in the root, absolute, without links. */
  readonly directory: string;
  readonly owner: Owner | undefined;
  readonly idMaps: IdMaps | undefined;
}

/** Tells whether a file is a tar, compressed or not. What cannot be decompressed is none. */
export async function isArchive(at: string): Promise<boolean> {
  let head = Buffer.alloc(0);
  const decompressor = createDecompressor((chunk) => {
    if (head.length < BLOCK_SIZE) head = Buffer.concat([head, chunk.subarray(0, BLOCK_SIZE - head.length)]);
  });
  try {
    let given = 0;
    for (const piece of pieces(at, PROBE_BYTES)) {
      await decompressor.write(Buffer.from(piece));
      given += piece.length;
      if (head.length >= BLOCK_SIZE || given >= PROBE_BYTES) break;
    }
    if (head.length < BLOCK_SIZE) await decompressor.end();
  } catch {
    // A broken or a cut stream may still have shown its first block.
  } finally {
    decompressor.destroy();
  }
  return isTarHeader(head);
}

/** Unpacks the archive. @throws EngineError for one that is damaged. */
export async function unpackArchive(at: string, target: ArchiveTarget): Promise<void> {
  const extractor = new TreeExtractor({ ...target, noOverwriteDirNonDir: false });
  const decompressor = createDecompressor((chunk) => extractor.write(chunk));
  try {
    for (const piece of pieces(at, PIECE_BYTES)) await decompressor.write(Buffer.from(piece));
    await decompressor.end();
    extractor.finish();
  } finally {
    decompressor.destroy();
    extractor.close();
  }
}

function* pieces(at: string, size: number): Generator<Buffer> {
  const fd = openSync(fsPath(at), constants.O_RDONLY | constants.O_NOFOLLOW);
  const buffer = Buffer.allocUnsafe(size);
  try {
    for (let length = readSync(fd, buffer); length > 0; length = readSync(fd, buffer)) yield buffer.subarray(0, length);
  } finally {
    closeSync(fd);
  }
}

/** The sum of the bytes of a header is in it, where its own field counts as blanks. */
function isTarHeader(block: Buffer): boolean {
  if (block.length < BLOCK_SIZE) return false;
  const stored = Number.parseInt(block.toString('latin1', 148, 156).replaceAll('\0', ' ').trim(), 8);
  let sum = 0;
  for (let index = 0; index < BLOCK_SIZE; index++) sum += index >= 148 && index < 156 ? 32 : (block[index] ?? 0);
  return stored === sum;
}
