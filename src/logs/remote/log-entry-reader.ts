/** Reads what a log plugin tells of a log: `LogEntry` messages of protocol buffers, each behind its length. */
import { internal } from '../../errors/engine-error.js';
import type { StreamName } from '../../ports/logs.js';
import { LocalEncoder } from '../drivers/local-record.js';
import { MAX_LINE_BYTES } from '../drivers/record-format.js';

const LENGTH_BYTES = 4;
/** A plugin may have joined the pieces of a long line; no more than this is held of one. */
const MAX_ENTRY_BYTES = 1 << 20;
const WIRE = { varint: 0, fixed64: 1, bytes: 2, fixed32: 5 } as const;
const FIELD = { source: 1, time: 2, line: 3, partial: 4, metadata: 5 } as const;
const FIELD_OF_METADATA = { last: 1 } as const;

interface Entry {
  readonly stream: StreamName;
  readonly timeNs: bigint;
  readonly line: Buffer;
  /** False for a piece of a line that goes on in the next entry. */
  readonly endsLine: boolean;
}

/** Turns the pieces of an answer into records of the local format, which has a decoder for every option of readers. */
export class LogEntryReader {
  readonly #encoder = new LocalEncoder();
  #rest: Buffer = Buffer.alloc(0);

  /** Returns the records in a piece, together with what was left of the ones before. @throws EngineError internal. */
  take(piece: Buffer): Buffer {
    const bytes = this.#rest.length === 0 ? piece : Buffer.concat([this.#rest, piece]);
    const records: Buffer[] = [];
    let at = 0;
    while (bytes.length - at >= LENGTH_BYTES) {
      const size = bytes.readUInt32BE(at);
      if (size > MAX_ENTRY_BYTES) throw damaged(`an entry has ${size} bytes`);
      const start = at + LENGTH_BYTES;
      if (start + size > bytes.length) break;
      records.push(this.#record(readEntry(bytes.subarray(start, start + size))));
      at = start + size;
    }
    this.#rest = bytes.subarray(at);
    return Buffer.concat(records);
  }

  /** A record has room for a line of `MAX_LINE_BYTES`, so a longer one becomes several. */
  #record({ stream, timeNs, line, endsLine }: Entry): Buffer {
    const pieces = Math.max(1, Math.ceil(line.length / MAX_LINE_BYTES));
    const out = Buffer.allocUnsafe(line.length + pieces * (this.#encoder.maxRecordBytes - MAX_LINE_BYTES));
    this.#encoder.begin(stream, timeNs);
    let end = 0;
    for (let ordinal = 1; ordinal <= pieces; ordinal++) {
      const from = (ordinal - 1) * MAX_LINE_BYTES;
      const isLast = endsLine && ordinal === pieces;
      const to = Math.min(from + MAX_LINE_BYTES, line.length);
      end = this.#encoder.encode(line, from, to, isLast ? undefined : { id: '', ordinal, isLast }, out, end);
    }
    return out.subarray(0, end);
  }
}

/** Fields that are not known are passed over, as protocol buffers ask for. */
function readEntry(bytes: Buffer): Entry {
  let stream: StreamName = 'stdout';
  let timeNs = 0n;
  let line: Buffer = Buffer.alloc(0);
  let isPartial = false;
  let isLast = false;
  for (const { field, value } of fieldsOf(bytes)) {
    if (field === FIELD.source && Buffer.isBuffer(value)) stream = value.toString() === 'stderr' ? 'stderr' : 'stdout';
    else if (field === FIELD.time && typeof value === 'bigint') timeNs = BigInt.asIntN(64, value);
    else if (field === FIELD.line && Buffer.isBuffer(value)) line = value;
    else if (field === FIELD.partial && typeof value === 'bigint') isPartial = value !== 0n;
    else if (field === FIELD.metadata && Buffer.isBuffer(value))
      isLast = [...fieldsOf(value)].some((inner) => inner.field === FIELD_OF_METADATA.last && inner.value === 1n);
  }
  return { stream, timeNs, line, endsLine: !isPartial || isLast };
}

function* fieldsOf(bytes: Buffer): Generator<{ readonly field: number; readonly value: bigint | Buffer }> {
  for (let at = 0; at < bytes.length;) {
    const [tag, afterTag] = varintAt(bytes, at);
    const [field, wire] = [Number(tag >> 3n), Number(tag & 7n)];
    if (wire === WIRE.varint) {
      const [value, next] = varintAt(bytes, afterTag);
      yield { field, value };
      at = next;
      continue;
    }
    const [size, start] = wire === WIRE.bytes ? varintAt(bytes, afterTag) : [fixedSize(wire), afterTag];
    const end = start + Number(size);
    if (end > bytes.length) throw damaged('a field is longer than its entry');
    yield { field, value: bytes.subarray(start, end) };
    at = end;
  }
}

function fixedSize(wire: number): bigint {
  if (wire === WIRE.fixed64) return 8n;
  if (wire === WIRE.fixed32) return 4n;
  throw damaged(`a field has the type ${wire}`);
}

/** A number has 64 bits, seven of them in each byte. */
function varintAt(bytes: Buffer, start: number): readonly [value: bigint, end: number] {
  let value = 0n;
  for (let at = start, shift = 0n; shift < 70n; at++, shift += 7n) {
    const byte = bytes[at];
    if (byte === undefined) break;
    value |= BigInt(byte & 0x7f) << shift;
    if (byte < 0x80) return [BigInt.asUintN(64, value), at + 1];
  }
  throw damaged('a number has no end');
}

const damaged = (what: string): Error => internal(`the plugin's log cannot be read: ${what}`, { code: 'PLUGIN' });
