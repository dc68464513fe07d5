/** Makes times in a tar that are later than a given one equal to it, so that equal files give equal archives. */

const BLOCK_BYTES = 512;
const MTIME = { at: 136, length: 12 };
const SIZE = { at: 124, length: 12 };
const CHECKSUM = { at: 148, length: 8 };
const TYPE_AT = 156;
/** Extended headers are small; a longer one is passed on as it is. */
const MAX_EXTENDED_BYTES = 1024 * 1024;
/** Entries of these types have no content, whatever their size says: links, devices, directories, pipes. */
const WITHOUT_CONTENT: ReadonlySet<string> = new Set(['1', '2', '3', '4', '5', '6']);
const TIMES: ReadonlySet<string> = new Set(['mtime', 'atime', 'ctime']);

/** @param epoch in seconds since 1970. Yields the bytes of the other tar; what is no tar passes unchanged. */
export function* clampTimes(chunks: Iterable<Buffer>, epoch: number): Generator<Buffer> {
  const source = new Blocks(chunks);
  let extendedSize: number | undefined;
  for (let header = source.take(BLOCK_BYTES); header.length > 0; header = source.take(BLOCK_BYTES)) {
    if (header.length < BLOCK_BYTES || header.every((byte) => byte === 0)) {
      yield header;
      continue;
    }
    const type = String.fromCharCode(header[TYPE_AT] ?? 0);
    const size = WITHOUT_CONTENT.has(type) ? 0 : (extendedSize ?? numberIn(header, SIZE));
    extendedSize = undefined;
    if (type === 'x' && size <= MAX_EXTENDED_BYTES) {
      const records = recordsOf(source.take(padded(size)).subarray(0, size));
      const written = records.find(([key]) => key === 'size')?.[1];
      extendedSize = written === undefined ? undefined : Number(written);
      yield* extendedHeader(header, records, epoch);
      continue;
    }
    if (numberIn(header, MTIME) > epoch) setNumber(header, MTIME, epoch);
    setChecksum(header);
    yield header;
    yield* source.pass(padded(size));
  }
}

type PaxRecord = readonly [key: string, value: string, bytes: Buffer];

/** Leaves out the times that are too late: the header of the entry has the right one. */
function* extendedHeader(header: Buffer, records: readonly PaxRecord[], epoch: number): Generator<Buffer> {
  const kept = records.filter(([key, value]) => !TIMES.has(key) || Number(value) <= epoch);
  if (kept.length === 0) return;
  const body = Buffer.concat(kept.map(([, , bytes]) => bytes));
  setNumber(header, SIZE, body.length);
  if (numberIn(header, MTIME) > epoch) setNumber(header, MTIME, epoch);
  setChecksum(header);
  yield header;
  yield Buffer.concat([body, Buffer.alloc(padded(body.length) - body.length)]);
}

/** Reads records of the form `<length> <key>=<value>\n`. The rest of a damaged header is dropped. */
function recordsOf(body: Buffer): PaxRecord[] {
  const records: PaxRecord[] = [];
  for (let at = 0; at < body.length;) {
    const blank = body.indexOf(0x20, at);
    const length = blank < 0 ? Number.NaN : Number(body.toString('latin1', at, blank));
    if (!Number.isInteger(length) || length <= blank - at || at + length > body.length) break;
    const bytes = body.subarray(at, at + length);
    const text = bytes.toString('latin1', blank - at + 1, length - 1);
    const sign = text.indexOf('=');
    records.push([text.slice(0, Math.max(sign, 0)), text.slice(sign + 1), bytes]);
    at += length;
  }
  return records;
}

interface Field {
  readonly at: number;
  readonly length: number;
}

/** Octal digits, or bytes of a large number after a mark. */
function numberIn(header: Buffer, { at, length }: Field): number {
  const field = header.subarray(at, at + length);
  const [first = 0] = field;
  if ((first & 0x80) !== 0) return Number(BigInt(`0x${field.toString('hex', 4)}`) & 0x7fff_ffff_ffff_ffffn);
  return Number.parseInt(field.toString('latin1').trim(), 8) || 0;
}

function setNumber(header: Buffer, { at, length }: Field, value: number): void {
  header.fill(0, at, at + length);
  header.write(value.toString(8).padStart(length - 1, '0'), at, 'latin1');
}

/** The sum counts its own field as blanks. */
function setChecksum(header: Buffer): void {
  header.fill(0x20, CHECKSUM.at, CHECKSUM.at + CHECKSUM.length);
  let sum = 0;
  for (const byte of header) sum += byte;
  header.write(`${sum.toString(8).padStart(6, '0')}\0 `, CHECKSUM.at, 'latin1');
}

function padded(bytes: number): number {
  return Math.ceil(bytes / BLOCK_BYTES) * BLOCK_BYTES;
}

/** Cuts chunks into the pieces that are asked for. */
class Blocks {
  readonly #chunks: Iterator<Buffer>;
  #rest: Buffer = Buffer.alloc(0);

  constructor(chunks: Iterable<Buffer>) {
    this.#chunks = chunks[Symbol.iterator]();
  }

  /** Returns a copy of the next bytes; fewer at the end. */
  take(count: number): Buffer {
    return Buffer.concat([...this.pass(count)]);
  }

  *pass(count: number): Generator<Buffer> {
    for (let left = count; left > 0;) {
      if (this.#rest.length === 0) {
        const next = this.#chunks.next();
        if (next.done === true) return;
        this.#rest = next.value;
      }
      const piece = this.#rest.subarray(0, left);
      this.#rest = this.#rest.subarray(piece.length);
      left -= piece.length;
      yield piece;
    }
  }
}
