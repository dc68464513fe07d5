/**
 * Writes records of the json-file driver, byte for byte as Go's encoder in the known engine:
 * `{"log":"…\n","stream":"stdout","attrs":{…},"time":"…"}` and a newline.
 */
import type { StreamName } from '../../ports/logs.js';
import { MAX_LINE_BYTES, type Piece, type RecordEncoder } from './record-format.js';
import { formatTime } from '../record-time.js';
import { inPairs } from './byte-pairs.js';
import { SimpleLines } from './simple-lines.js';

const NEWLINE = 10;
const HEX = Buffer.from('0123456789abcdef', 'latin1');
const PREFIX = Buffer.from('{"log":"', 'latin1');
const PREFIX_START = PREFIX.readInt32LE(0);
const PREFIX_END = PREFIX.readInt32LE(4);
/** The worst case is `\u00XX` or `\ufffd` for one byte. */
const WORST_GROWTH = 6;

/** 1 for each byte that cannot be copied as it is. HTML's special characters are escaped, as Go does by default. */
const SPECIAL = Uint8Array.from({ length: 256 }, (_, byte) =>
  byte < 0x20 || byte >= 0x80 || '"\\<>&'.includes(String.fromCharCode(byte)) ? 1 : 0,
);
const SPECIAL_PAIR = inPairs(SPECIAL);

/** Fewer bytes are encoded sooner one by one. */
const LEAST_SIMPLE_BYTES = 1024;
/** Where simple lines are fewer than this, so many bytes of output follow one by one. */
const FEW_BYTES = 4096;
const PLAIN_OUTPUT_BYTES = 32 * 1024;

/** Made when the first container prints much; empty where it cannot be made. */
let made: { readonly simple: SimpleLines | undefined } | undefined;

export class JsonEncoder implements RecordEncoder {
  readonly maxRecordBytes: number;
  end = 0;
  readonly #attrs: string;
  /** These bytes follow the text of a line: its newline, the other members and the end of the record. */
  #suffix = Buffer.alloc(0);
  #suffixWords = words(this.#suffix);

  /** @param attrs extra members of each record; sorted here. */
  constructor(attrs: Readonly<Record<string, string>> = {}) {
    const names = Object.keys(attrs).sort();
    this.#attrs =
      names.length === 0
        ? ''
        : `,"attrs":{${names.map((name) => `${quote(name)}:${quote(attrs[name] ?? '')}`).join(',')}}`;
    this.maxRecordBytes = MAX_LINE_BYTES * WORST_GROWTH + Buffer.byteLength(this.#attrs) + 128;
  }

  begin(stream: StreamName, timeNs: bigint): void {
    this.#suffix = Buffer.from(`\\n","stream":"${stream}"${this.#attrs},"time":"${formatTime(timeNs)}"}\n`);
    this.#suffixWords = words(this.#suffix);
  }

  encode(source: Buffer, from: number, to: number, piece: Piece | undefined, out: Buffer, at: number): number {
    let o = at;
    out.set(PREFIX, o);
    o += PREFIX.length;
    for (let i = from; i < to;) {
      const byte = source[i] ?? 0;
      if (SPECIAL[byte] === 0) {
        out[o++] = byte;
        i++;
      } else {
        const length = runeLength(source, i, to);
        o = escape(source, i, length, out, o);
        i += length === 0 ? 1 : length;
      }
    }
    const suffix = piece && !piece.isLast ? this.#suffix.subarray(2) : this.#suffix;
    out.set(suffix, o);
    return o + suffix.length;
  }

  encodeLines(source: Buffer, from: number, out: Buffer, at: number, limit: number): number {
    let i = from;
    let o = at;
    while (source.length - i >= LEAST_SIMPLE_BYTES && o < limit && SimpleLines.takes(this.#suffix)) {
      made ??= { simple: SimpleLines.make() };
      const { simple } = made;
      if (!simple) break;
      simple.begin(this.#suffix);
      const line = simple.encode(source, i, out, o, limit);
      o = simple.end;
      const plainBytes = line - i < FEW_BYTES ? PLAIN_OUTPUT_BYTES : 1;
      i = this.#encodeBytes(source, line, out, o, Math.min(limit, o + plainBytes));
      o = this.end;
      // The line is not complete, or too long, or there is no more room.
      if (i === line) return i;
    }
    return this.#encodeBytes(source, i, out, o, limit);
  }

  #encodeBytes(source: Buffer, from: number, out: Buffer, at: number, limit: number): number {
    const suffix = this.#suffix;
    const suffixWords = this.#suffixWords;
    const suffixLength = suffix.length;
    const suffixWhole = suffixLength & ~3;
    const sourceWords = words(source);
    const outWords = words(out);
    const size = source.length;
    let lineStart = from;
    let i = from;
    let o = at;
    this.end = at;
    if (at >= limit) return from;
    out.set(PREFIX, o);
    o += PREFIX.length;
    let lineLimit = Math.min(size, lineStart + MAX_LINE_BYTES);
    for (;;) {
      // Takes four bytes at a time while none of them is special: the throughput of logs depends on this loop.
      const lastWhole = lineLimit - 4;
      while (i <= lastWhole) {
        const word = sourceWords.getInt32(i, true);
        if (((SPECIAL_PAIR[word & 0xffff] as number) | (SPECIAL_PAIR[word >>> 16] as number)) !== 0) break;
        outWords.setInt32(o, word, true);
        i += 4;
        o += 4;
      }
      // The caller handles incomplete and overlong lines.
      if (i >= lineLimit) return lineStart;
      const byte = source[i] as number;
      if (SPECIAL[byte] === 0) {
        out[o++] = byte;
        i++;
      } else if (byte === NEWLINE) {
        for (let k = 0; k < suffixWhole; k += 4) outWords.setInt32(o + k, suffixWords.getInt32(k, true), true);
        for (let k = suffixWhole; k < suffixLength; k++) out[o + k] = suffix[k] as number;
        o += suffixLength;
        this.end = o;
        lineStart = ++i;
        if (i >= size || o >= limit) return lineStart;
        outWords.setInt32(o, PREFIX_START, true);
        outWords.setInt32(o + 4, PREFIX_END, true);
        o += 8;
        lineLimit = Math.min(size, lineStart + MAX_LINE_BYTES);
      } else if (byte < 0x80) {
        o = escape(source, i++, 1, out, o);
      } else {
        const length = runeLength(source, i, lineLimit);
        o = escape(source, i, length, out, o);
        i += length === 0 ? 1 : length;
      }
    }
  }

  count(records: Buffer): number {
    let count = 0;
    for (let at = records.indexOf(NEWLINE); at >= 0; at = records.indexOf(NEWLINE, at + 1)) count++;
    return count;
  }
}

function words(buffer: Buffer): DataView {
  return new DataView(buffer.buffer, buffer.byteOffset, buffer.length);
}

/** Returns the length of the well-formed UTF-8 sequence at `at` (Unicode, table 3-7); 0 when there is none. */
function runeLength(source: Buffer, at: number, end: number): number {
  const first = source[at] as number;
  if (first < 0x80) return 1;
  if (first < 0xc2 || first > 0xf4) return 0;
  const length = first < 0xe0 ? 2 : first < 0xf0 ? 3 : 4;
  if (at + length > end) return 0;
  const second = source[at + 1] as number;
  const lowest = first === 0xe0 ? 0xa0 : first === 0xf0 ? 0x90 : 0x80;
  const highest = first === 0xed ? 0x9f : first === 0xf4 ? 0x8f : 0xbf;
  if (second < lowest || second > highest) return 0;
  for (let k = 2; k < length; k++) if (((source[at + k] as number) & 0xc0) !== 0x80) return 0;
  return length;
}

/** Writes the special character of `length` bytes (0: an invalid byte) at `at`. Returns the end in `out`. */
function escape(source: Buffer, at: number, length: number, out: Buffer, start: number): number {
  let o = start;
  const byte = source[at] as number;
  if (length > 1) {
    // U+2028 and U+2029 end lines in JavaScript.
    if (byte === 0xe2 && source[at + 1] === 0x80 && ((source[at + 2] as number) & 0xfe) === 0xa8) {
      return o + out.write(source[at + 2] === 0xa8 ? '\\u2028' : '\\u2029', o, 'latin1');
    }
    for (let k = 0; k < length; k++) out[o++] = source[at + k] as number;
    return o;
  }
  if (length === 0) return o + out.write('\\ufffd', o, 'latin1');
  out[o++] = 0x5c;
  if (byte === 0x22 || byte === 0x5c) out[o++] = byte;
  else if (byte === NEWLINE) out[o++] = 0x6e;
  else if (byte === 0x0d) out[o++] = 0x72;
  else {
    out[o++] = 0x75;
    out[o++] = 0x30;
    out[o++] = 0x30;
    out[o++] = HEX[byte >> 4] as number;
    out[o++] = HEX[byte & 15] as number;
  }
  return o;
}

/** Returns a JSON string as Go's encoder writes it. */
function quote(text: string): string {
  return JSON.stringify(text).replaceAll(
    /[<>&\u2028\u2029]/g,
    (character) => `\\u${character.charCodeAt(0).toString(16).padStart(4, '0')}`,
  );
}
