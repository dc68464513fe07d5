/**
 * Records of the local driver: big-endian length, a protobuf message, the length again. The message has the fields
 * source = 1, time_nano = 2, line = 3, partial = 4, partial_log_metadata = 5 {last = 1, id = 2, ordinal = 3}, written
 * in this order; the line is without its newline.
 */
import type { StreamName } from '../../ports/logs.js';
import { MAX_LINE_BYTES, type Piece, type RecordEncoder } from './record-format.js';

const NEWLINE = 10;
export const LENGTH_BYTES = 4;
/** No length is larger than this, because a line has at most 16 KiB. */
export const MAX_LOCAL_RECORD_BYTES = 64 * 1024;
/** A message begins with field 1, six letters, of which the first three are the same for both streams. */
export const MESSAGE_START = Buffer.from('\n\u0006std', 'latin1');
const SOURCES = {
  stdout: Buffer.from('\n\u0006stdout', 'latin1'),
  stderr: Buffer.from('\n\u0006stderr', 'latin1'),
} as const;
const LETTER_O = 0x6f;

const TAG = {
  source: 0x0a,
  time: 0x10,
  line: 0x1a,
  partial: 0x20,
  metadata: 0x2a,
  last: 0x08,
  id: 0x12,
  ordinal: 0x18,
} as const;

export class LocalEncoder implements RecordEncoder {
  readonly maxRecordBytes = MAX_LINE_BYTES + 256;
  end = 0;
  #head = Buffer.alloc(0);

  begin(stream: StreamName, timeNs: bigint): void {
    const head = Buffer.alloc(24);
    let at = head.write(`\n\u0006${stream}`, 0, 'latin1');
    head[at++] = TAG.time;
    for (let rest = BigInt.asUintN(64, timeNs); ; rest >>= 7n) {
      const bits = Number(rest & 0x7fn);
      head[at++] = rest > 0x7fn ? bits | 0x80 : bits;
      if (rest <= 0x7fn) break;
    }
    this.#head = head.subarray(0, at);
  }

  encode(source: Buffer, from: number, to: number, piece: Piece | undefined, out: Buffer, start: number): number {
    let at = start + LENGTH_BYTES;
    out.set(this.#head, at);
    at += this.#head.length;
    if (to > from) {
      out[at++] = TAG.line;
      at = writeVarint(out, at, to - from);
      at += source.copy(out, at, from, to);
    }
    if (piece) at = writePiece(out, at, piece);
    const length = at - start - LENGTH_BYTES;
    out.writeUInt32BE(length, start);
    return out.writeUInt32BE(length, at);
  }

  encodeLines(source: Buffer, from: number, out: Buffer, start: number, limit: number): number {
    let line = from;
    let at = start;
    while (at < limit) {
      const newline = source.indexOf(NEWLINE, line);
      if (newline < 0 || newline - line > MAX_LINE_BYTES - 1) break;
      at = this.encode(source, line, newline, undefined, out, at);
      line = newline + 1;
    }
    this.end = at;
    return line;
  }

  count(records: Buffer): number {
    let count = 0;
    for (let at = 0; at < records.length; at += records.readUInt32BE(at) + 2 * LENGTH_BYTES) count++;
    return count;
  }
}

function writeVarint(out: Buffer, start: number, value: number): number {
  let at = start;
  let rest = value;
  for (; rest > 0x7f; rest >>>= 7) out[at++] = (rest & 0x7f) | 0x80;
  out[at++] = rest;
  return at;
}

function writePiece(out: Buffer, start: number, { id, ordinal, isLast }: Piece): number {
  let at = start;
  out[at++] = TAG.partial;
  out[at++] = 1;
  out[at++] = TAG.metadata;
  const lengthAt = at++;
  if (isLast) {
    out[at++] = TAG.last;
    out[at++] = 1;
  }
  out[at++] = TAG.id;
  out[at++] = id.length;
  at += out.write(id, at, 'latin1');
  out[at++] = TAG.ordinal;
  at = writeVarint(out, at, ordinal);
  out[lengthAt] = at - lengthAt - 1;
  return at;
}

/** A record that was found in a block. */
export class LocalRecord {
  /** The end of the record in the block. */
  end = 0;
  stream: StreamName = 'stdout';
  lineStart = 0;
  lineEnd = 0;
  hasNewline = true;
  timeNs = 0n;

  /**
   * Reads the record at `at`. Returns 'incomplete' when the block ends before the record does, and 'damaged' for
   * anything that the encoder does not write.
   */
  read(block: Buffer, length: number, at: number): 'whole' | 'incomplete' | 'damaged' {
    if (length - at < LENGTH_BYTES) return 'incomplete';
    const size = block.readUInt32BE(at);
    if (size > MAX_LOCAL_RECORD_BYTES || size < MESSAGE_START.length) return 'damaged';
    const end = at + LENGTH_BYTES + size;
    if (end + LENGTH_BYTES > length) return 'incomplete';
    if (block.readUInt32BE(end) !== size) return 'damaged';
    this.end = end + LENGTH_BYTES;
    return this.#message(block, at + LENGTH_BYTES, end) ? 'whole' : 'damaged';
  }

  #message(block: Buffer, start: number, end: number): boolean {
    this.stream = block[start + MESSAGE_START.length] === LETTER_O ? 'stdout' : 'stderr';
    const source = SOURCES[this.stream];
    for (let k = 0; k < source.length; k++) if (block[start + k] !== source[k]) return false;
    let at = start + 8;
    if (block[at++] !== TAG.time) return false;
    at = this.#time(block, at);
    this.lineStart = at;
    this.lineEnd = at;
    this.hasNewline = true;
    if (at < end && block[at] === TAG.line) {
      const [size, next] = readVarint(block, at + 1);
      this.lineStart = next;
      this.lineEnd = next + size;
      at = this.lineEnd;
    }
    if (at < end && block[at] === TAG.partial) {
      if (block[at + 1] !== 1 || block[at + 2] !== TAG.metadata) return false;
      this.hasNewline = block[at + 4] === TAG.last && block[at + 5] === 1;
      at += 4 + (block[at + 3] ?? 0);
    }
    return at === end;
  }

  #time(block: Buffer, start: number): number {
    // Each byte has seven bits: the low 49 and the high ones each fit into a double.
    let low = 0;
    let high = 0;
    let at = start;
    for (let k = 0; k < 10; k++) {
      const byte = block[at++] ?? 0;
      if (k < 7) low += (byte & 0x7f) * 2 ** (7 * k);
      else high += (byte & 0x7f) * 2 ** (7 * (k - 7));
      if (byte < 0x80) break;
    }
    this.timeNs = BigInt.asIntN(64, (BigInt(high) << 49n) + BigInt(low));
    return at;
  }
}

function readVarint(block: Buffer, start: number): [value: number, end: number] {
  let value = 0;
  let at = start;
  for (let shift = 0; shift < 28; shift += 7) {
    const byte = block[at++] ?? 0;
    value |= (byte & 0x7f) << shift;
    if (byte < 0x80) break;
  }
  return [value, at];
}
