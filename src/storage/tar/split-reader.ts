/** Reads the records of a tar-split file. */
import { inflateRawSync } from 'node:zlib';
import { dataLoss } from '../../errors/engine-error.js';
import { SPLIT_END, SPLIT_FILE, SPLIT_MAGIC, SPLIT_RAW } from './split-format.js';

export type SplitRecord =
  | { readonly type: 'raw'; readonly bytes: Buffer }
  /** `path` is a byte string. */
  | { readonly type: 'file'; readonly path: string; readonly sizeBytes: number }
  | { readonly type: 'end'; readonly tarBytes: number };

/** A block must not claim to inflate to more; writers make blocks of 256 KiB. */
const MAX_BLOCK_BYTES = 16 * 1024 * 1024;

export function splitDamaged(what: string): Error {
  return dataLoss(`tar-split data of the layer are damaged: ${what}`, { code: 'TAR_SPLIT_DAMAGED' });
}

/** Checks the first bytes of the file and returns their length. @throws EngineError data-loss. */
export function checkMagic(start: Buffer): number {
  if (!start.subarray(0, SPLIT_MAGIC.length).equals(SPLIT_MAGIC)) throw splitDamaged('unknown format');
  return SPLIT_MAGIC.length;
}

/** Returns the length of the deflated block whose eight bytes of lengths are given. @throws EngineError data-loss. */
export function blockBytes(lengths: Buffer): { readonly plain: number; readonly deflated: number } {
  const plain = lengths.readUInt32LE(0);
  const deflated = lengths.readUInt32LE(4);
  if (plain > MAX_BLOCK_BYTES || deflated > MAX_BLOCK_BYTES) throw splitDamaged('impossible block');
  return { plain, deflated };
}

/** Returns the records of a deflated block; the caller may keep the bytes of RAW records. */
export function* readBlock(deflated: Buffer, plainBytes: number): Generator<SplitRecord> {
  const block = inflate(deflated, plainBytes);
  for (let at = 0; at < block.length;) {
    const type = block[at];
    if (type === SPLIT_RAW && at + 5 <= block.length) {
      const end = at + 5 + block.readUInt32LE(at + 1);
      if (end > block.length) throw splitDamaged('record outside of its block');
      yield { type: 'raw', bytes: block.subarray(at + 5, end) };
      at = end;
    } else if (type === SPLIT_FILE && at + 9 <= block.length) {
      const path = at + 3 + block.readUInt16LE(at + 1);
      if (path + 6 > block.length) throw splitDamaged('record outside of its block');
      yield { type: 'file', path: block.toString('latin1', at + 3, path), sizeBytes: block.readUIntLE(path, 6) };
      at = path + 6;
    } else if (type === SPLIT_END && at + 7 <= block.length) {
      yield { type: 'end', tarBytes: block.readUIntLE(at + 1, 6) };
      at += 7;
    } else {
      throw splitDamaged('unknown record');
    }
  }
}

function inflate(deflated: Buffer, plainBytes: number): Buffer {
  let block: Buffer;
  try {
    block = inflateRawSync(deflated, { maxOutputLength: Math.max(plainBytes, 1) });
  } catch {
    // Whatever zlib says, the block is damaged.
    throw splitDamaged('block does not inflate');
  }
  if (block.length !== plainBytes) throw splitDamaged('block of a wrong length');
  return block;
}
