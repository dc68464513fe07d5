/** Encodes records as log plugins read them: a `LogEntry` of protocol buffers behind its length, 4 bytes big-endian. */
import type { RemoteRecord } from './remote-sink.js';

// Tags of the fields: number and wire type (0 varint, 2 bytes).
const SOURCE = 0x0a;
const TIME_NANO = 0x10;
const LINE = 0x1a;
const PARTIAL = 0x20;
const PARTIAL_METADATA = 0x2a;
const METADATA_LAST = 0x08;
const METADATA_ID = 0x12;
const METADATA_ORDINAL = 0x18;

export function encodeLogEntry({ stream, timeNs, line, piece }: RemoteRecord): Buffer {
  const metadata = piece
    ? Buffer.concat([
        ...(piece.isLast ? [Buffer.from([METADATA_LAST, 1])] : []),
        bytesField(METADATA_ID, Buffer.from(piece.id)),
        varintField(METADATA_ORDINAL, BigInt(piece.ordinal)),
      ])
    : undefined;
  const entry = [
    bytesField(SOURCE, Buffer.from(stream)),
    varintField(TIME_NANO, timeNs),
    bytesField(LINE, line),
    ...(metadata ? [Buffer.from([PARTIAL, 1]), bytesField(PARTIAL_METADATA, metadata)] : []),
  ];
  const length = Buffer.alloc(4);
  length.writeUInt32BE(entry.reduce((sum, part) => sum + part.length, 0));
  return Buffer.concat([length, ...entry]);
}

function bytesField(tag: number, value: Buffer): Buffer {
  return Buffer.concat([Buffer.from([tag]), varint(BigInt(value.length)), value]);
}

function varintField(tag: number, value: bigint): Buffer {
  return Buffer.concat([Buffer.from([tag]), varint(value)]);
}

function varint(value: bigint): Buffer {
  const bytes: number[] = [];
  for (let rest = value; ; rest >>= 7n) {
    const low = Number(rest & 0x7fn);
    if (rest < 0x80n) return Buffer.from([...bytes, low]);
    bytes.push(low | 0x80);
  }
}
