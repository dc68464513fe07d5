/** The part of MessagePack that fluentd's forward protocol needs. */

/** fluentd's time with nanoseconds: extension type 0. */
const EVENT_TIME = Buffer.from([0xd7, 0x00]);

/** Packs the head of an array; its items, at most 15, must follow. */
export function packArrayHead(count: number): Buffer {
  return Buffer.from([0x90 | count]);
}

export function packString(text: string | Buffer): Buffer {
  const bytes = typeof text === 'string' ? Buffer.from(text) : text;
  const { length } = bytes;
  let head: Buffer;
  if (length < 32) head = Buffer.from([0xa0 | length]);
  else if (length < 1 << 8) head = Buffer.from([0xd9, length]);
  else if (length < 1 << 16) head = Buffer.from([0xda, length >> 8, length & 0xff]);
  else {
    head = Buffer.from([0xdb, 0, 0, 0, 0]);
    head.writeUInt32BE(length, 1);
  }
  return Buffer.concat([head, bytes]);
}

/** Packs the head of a map; its entries, at most 65535, must follow. */
export function packMapHead(count: number): Buffer {
  return count < 16 ? Buffer.from([0x80 | count]) : Buffer.from([0xde, count >> 8, count & 0xff]);
}

/** Packs entries of a map whose values are text. */
export function packEntries(values: Readonly<Record<string, string>>): Buffer {
  return Buffer.concat(Object.entries(values).flatMap(([key, value]) => [packString(key), packString(value)]));
}

/** Packs a time as whole seconds or, if `isPrecise`, as an EventTime with nanoseconds. */
export function packTime(timeNs: bigint, isPrecise: boolean): Buffer {
  const seconds = Number(timeNs / 1_000_000_000n);
  if (!isPrecise) {
    const bytes = Buffer.from([0xce, 0, 0, 0, 0]);
    bytes.writeUInt32BE(seconds, 1);
    return bytes;
  }
  const bytes = Buffer.alloc(10);
  EVENT_TIME.copy(bytes);
  bytes.writeUInt32BE(seconds, 2);
  bytes.writeUInt32BE(Number(timeNs % 1_000_000_000n), 6);
  return bytes;
}

/**
 * Reads `{"ack": "..."}` at the start of `bytes`: the acknowledged chunk, and the length; undefined while it is
 * incomplete.
 * @throws Error for anything else.
 */
export function unpackAck(bytes: Buffer): { readonly chunk: string; readonly length: number } | undefined {
  if (bytes.length === 0) return undefined;
  if (bytes[0] !== 0x81) throw new Error('the server answered with something else than an acknowledgement');
  const key = unpackString(bytes, 1);
  const value = key && unpackString(bytes, key.end);
  if (!key || !value) return undefined;
  if (key.text !== 'ack') throw new Error('the server answered with something else than an acknowledgement');
  return { chunk: value.text, length: value.end };
}

function unpackString(bytes: Buffer, at: number): { readonly text: string; readonly end: number } | undefined {
  const type = bytes[at];
  if (type === undefined) return undefined;
  let lengthBytes: number;
  if (type >= 0xa0 && type < 0xc0) lengthBytes = 0;
  else if (type === 0xd9 || type === 0xc4) lengthBytes = 1;
  else if (type === 0xda || type === 0xc5) lengthBytes = 2;
  else throw new Error('the server answered with something else than an acknowledgement');
  if (bytes.length < at + 1 + lengthBytes) return undefined;
  const length = lengthBytes === 0 ? type & 0x1f : bytes.readUIntBE(at + 1, lengthBytes);
  const start = at + 1 + lengthBytes;
  return bytes.length < start + length
    ? undefined
    : { text: bytes.toString('utf8', start, start + length), end: start + length };
}
