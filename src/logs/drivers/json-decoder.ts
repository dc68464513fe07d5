/**
 * Reads what json-encoder.ts wrote, into bytes for the wire. Nearly all records of a log have the same shape, so the
 * text is unescaped in one pass, and what follows it is compared with the same part of the record before. Other records
 * go through JSON.parse. A record that it refuses is damaged; only this one is lost.
 */
import { takePiece } from '../../sys/files/piece-pool.js';
import type { OnDamage, OutputOptions, RecordDecoder } from './record-format.js';
import { inPairs } from './byte-pairs.js';
import { parseRecord, renderDetails, type JsonRecord } from './json-record.js';
import { formatTimeFixed } from '../record-time.js';
import { HEADER_BYTES } from '../attach/stdcopy.js';

const PREFIX = Buffer.from('{"log":"', 'latin1');
const PREFIX_START = PREFIX.readInt32LE(0);
const PREFIX_END = PREFIX.readInt32LE(4);
const TIME_BYTES = 30;
const TIME_PREFIX_BYTES = TIME_BYTES + 1;
/** This word has bytes of the one before. */
const LAST_TIME_WORD = TIME_PREFIX_BYTES - 4;
/** Longer tails, which have many attributes, are not compared as a whole. */
const MAX_TAIL_BYTES = 1024;
/** These bytes end the time and the record. */
const CLOSE = Buffer.from('Z"}\n');
/** At this place `","stream":"stdout"` and `","stream":"stderr"` differ. */
const STREAM_LETTER_AT = 15;
const LETTER_O = 0x6f;
const QUOTE = 0x22;
const BACKSLASH = 0x5c;
const NEWLINE = 0x0a;

/** 1 for each byte that does not stand for itself. */
const SPECIAL = Uint8Array.from({ length: 256 }, (_, byte) =>
  byte < 0x20 || byte === QUOTE || byte === BACKSLASH ? 1 : 0,
);
const SPECIAL_PAIR = inPairs(SPECIAL);
/** Maps the character after a backslash to its meaning; 0 for a character without one. */
const UNESCAPED = Uint8Array.from({ length: 256 }, (_, byte) => {
  const at = '"\\/bfnrt'.indexOf(String.fromCharCode(byte));
  return at < 0 ? 0 : '"\\/\b\f\n\r\t'.charCodeAt(at);
});
const HEX_VALUE = Int8Array.from({ length: 256 }, (_, byte) =>
  '0123456789abcdef'.indexOf(String.fromCharCode(byte).toLowerCase()),
);
/** The shape of `2006-01-02T15:04:05`, with 0 for each digit. */
const TIME_SHAPE = Buffer.from('0000-00-00T00:00:00').map((byte) => (byte === 0x30 ? 0 : byte));

/** These bytes stand between the text and the time in the records of one stream. */
interface Middle {
  readonly bytes: Buffer;
  readonly words: DataView;
  /** Details for the wire, with the space after them. */
  readonly details: Buffer;
}

export class JsonDecoder implements RecordDecoder {
  consumed = 0;
  isFinished = false;
  readonly #options: OutputOptions;
  readonly #onDamage: OnDamage;
  readonly #headerBytes: number;
  readonly #since: Buffer | undefined;
  readonly #until: Buffer | undefined;
  #stdout: Middle;
  #stderr: Middle;
  /** All that followed the text of the last usual record: most records that follow end alike. */
  readonly #tail = Buffer.alloc(MAX_TAIL_BYTES);
  readonly #tailWords = words(this.#tail);
  /** No record ends like 0 bytes. */
  #tailLength = 0;
  #isTailOfStdout = true;
  #isTailWanted = true;
  /** The last time as it is sent. */
  readonly #time = Buffer.from('2006-01-02T15:04:05.000000000Z ');
  readonly #timeWords = words(this.#time);
  #isTimeWanted = true;
  #out = Buffer.alloc(0);
  #outWords = words(this.#out);
  #end = 0;

  constructor(options: OutputOptions, onDamage: OnDamage) {
    this.#options = options;
    this.#onDamage = onDamage;
    this.#headerBytes = options.multiplexed ? HEADER_BYTES : 0;
    this.#since = options.sinceNs === undefined ? undefined : Buffer.from(formatTimeFixed(options.sinceNs));
    this.#until = options.untilNs === undefined ? undefined : Buffer.from(formatTimeFixed(options.untilNs));
    this.#stdout = this.#middle('","stream":"stdout","time":"', {});
    this.#stderr = this.#middle('","stream":"stderr","time":"', {});
  }

  decode(block: Buffer, length: number): Buffer {
    // The file's escapes and frames take more space than the wire's additions, except for details, which grow up to
    // threefold.
    this.#out = takePiece((this.#options.details ? length * 3 : length) + 256);
    this.#outWords = words(this.#out);
    this.#end = 0;
    const bytes = block.subarray(0, length);
    const blockWords = words(bytes);
    let at = 0;
    while (at < length && !this.isFinished) {
      const next = this.#record(bytes, blockWords, at);
      if (next > 0) at = next;
      else {
        const newline = bytes.indexOf(NEWLINE, at);
        if (newline < 0) break;
        this.#unusual(bytes.subarray(at, newline));
        at = newline + 1;
      }
    }
    this.consumed = at;
    const output = this.#out.subarray(0, this.#end);
    this.#out = Buffer.alloc(0);
    return output;
  }

  skip(block: Buffer): number {
    const last = block.lastIndexOf(PREFIX);
    const bytes = last > 0 ? last : block.length - PREFIX.length;
    this.#onDamage(bytes);
    return bytes;
  }

  /**
   * Decodes the record at `start` when it has the usual shape. Returns its end; 0 when it has another shape or is
   * incomplete.
   */
  #record(block: Buffer, blockWords: DataView, start: number): number {
    const length = block.length;
    if (length - start < 48) return 0;
    if (blockWords.getInt32(start, true) !== PREFIX_START) return 0;
    if (blockWords.getInt32(start + 4, true) !== PREFIX_END) return 0;
    const textStart = this.#textStart();
    this.#grow(textStart + length - start);
    const out = this.#out;
    const outWords = this.#outWords;
    let i = start + 8;
    let o = textStart;
    const lastWhole = length - 4;
    for (;;) {
      while (i <= lastWhole) {
        const word = blockWords.getInt32(i, true);
        if (((SPECIAL_PAIR[word & 0xffff] as number) | (SPECIAL_PAIR[word >>> 16] as number)) !== 0) break;
        outWords.setInt32(o, word, true);
        i += 4;
        o += 4;
      }
      if (i >= length) return 0;
      const byte = block[i] as number;
      if (SPECIAL[byte] === 0) {
        out[o++] = byte;
        i++;
      } else if (byte === BACKSLASH && i + 6 <= length) {
        const escaped = block[i + 1] as number;
        const simple = UNESCAPED[escaped] as number;
        if (simple !== 0) {
          out[o++] = simple;
          i += 2;
        } else {
          const code = escaped === 0x75 ? hex4(block, i + 2) : -1;
          // Halves of surrogate pairs are left to JSON.parse, too.
          if (code < 0 || (code >= 0xd800 && code < 0xe000)) return 0;
          o = writeRune(out, o, code);
          i += 6;
        }
      } else if (byte === QUOTE) return this.#finish(block, blockWords, i, textStart, o);
      else return 0;
    }
  }

  /** Checks what follows the text at `at`, and completes the output of a record that is wanted. */
  #finish(block: Buffer, blockWords: DataView, at: number, textStart: number, textEnd: number): number {
    if (this.#endsAlike(block, blockWords, at)) {
      if (this.#isTailWanted) {
        const middle = this.#isTailOfStdout ? this.#stdout : this.#stderr;
        this.#frame(this.#isTailOfStdout, middle, textStart, textEnd);
      }
      return at + this.#tailLength;
    }
    const isStdout = block[at + STREAM_LETTER_AT] === LETTER_O;
    const middle = isStdout ? this.#stdout : this.#stderr;
    const size = middle.bytes.length;
    if (at + size + 23 > block.length) return 0;
    const whole = size & ~3;
    for (let k = 0; k < whole; k += 4)
      if (blockWords.getInt32(at + k, true) !== middle.words.getInt32(k, true)) return 0;
    for (let k = whole; k < size; k++) if (block[at + k] !== middle.bytes[k]) return 0;
    const end = this.#readTime(block, at + size);
    if (end === 0) return 0;
    const isWanted = this.#isTimeWanted && (isStdout ? this.#options.stdout : this.#options.stderr);
    if (this.isFinished) return end;
    this.#rememberTail(block, at, end, { isStdout, isWanted });
    if (isWanted) this.#frame(isStdout, middle, textStart, textEnd);
    return end;
  }

  /** True when the same bytes as in the last usual record follow the text that ends at `at`. */
  #endsAlike(block: Buffer, blockWords: DataView, at: number): boolean {
    const length = this.#tailLength;
    if (length === 0 || at + length > block.length) return false;
    const tailWords = this.#tailWords;
    // The last word may have bytes of the word before it, since a tail has four at least.
    const last = length - 4;
    for (let k = 0; k < last; k += 4)
      if (blockWords.getInt32(at + k, true) !== tailWords.getInt32(k, true)) return false;
    return blockWords.getInt32(at + last, true) === tailWords.getInt32(last, true);
  }

  #rememberTail(
    block: Buffer,
    at: number,
    end: number,
    { isStdout, isWanted }: { readonly isStdout: boolean; readonly isWanted: boolean },
  ): void {
    const length = end - at;
    this.#tailLength = length <= MAX_TAIL_BYTES ? length : 0;
    if (this.#tailLength > 0) block.copy(this.#tail, 0, at, end);
    this.#isTailOfStdout = isStdout;
    this.#isTailWanted = isWanted;
  }

  /** Puts header, time and details before the text, which is at its place in the output already. */
  #frame(isStdout: boolean, middle: Middle, textStart: number, textEnd: number): void {
    let o = this.#end;
    let end = textEnd;
    if (this.#options.details && middle.details.length !== this.#stdout.details.length) {
      const shift = middle.details.length - this.#stdout.details.length;
      this.#grow(end + shift);
      this.#out.copyWithin(textStart + shift, textStart, textEnd);
      end += shift;
    }
    const out = this.#out;
    if (this.#options.multiplexed) {
      const size = end - o - HEADER_BYTES;
      out[o] = isStdout ? 1 : 2;
      out[o + 1] = 0;
      out[o + 2] = 0;
      out[o + 3] = 0;
      out[o + 4] = size >>> 24;
      out[o + 5] = size >>> 16;
      out[o + 6] = size >>> 8;
      out[o + 7] = size;
      o += HEADER_BYTES;
    }
    if (this.#options.timestamps) {
      const timeWords = this.#timeWords;
      for (let k = 0; k < LAST_TIME_WORD; k += 4) this.#outWords.setInt32(o + k, timeWords.getInt32(k, true), true);
      this.#outWords.setInt32(o + LAST_TIME_WORD, timeWords.getInt32(LAST_TIME_WORD, true), true);
      o += TIME_PREFIX_BYTES;
    }
    if (this.#options.details) out.set(middle.details, o);
    this.#end = end;
  }

  /** Reads the time at `at` and the end of the record. Returns where that is; 0 when the time is not well formed. */
  #readTime(block: Buffer, at: number): number {
    // From here on the time is another one.
    this.#tailLength = 0;
    const time = this.#time;
    let i = at;
    for (let k = 0; k < 19; k++, i++) {
      const byte = block[i] as number;
      const shape = TIME_SHAPE[k] as number;
      if (shape === 0 ? byte < 0x30 || byte > 0x39 : byte !== shape) return 0;
      time[k] = byte;
    }
    let digits = 0;
    if (block[i] === 0x2e) {
      for (i++; digits < 9; digits++, i++) {
        const byte = block[i];
        if (byte === undefined || byte < 0x30 || byte > 0x39) break;
        time[20 + digits] = byte;
      }
      if (digits === 0) return 0;
    }
    for (; digits < 9; digits++) time[20 + digits] = 0x30;
    for (let k = 0; k < CLOSE.length; k++) if (block[i++] !== CLOSE[k]) return 0;
    this.#isTimeWanted = this.#checkTime();
    return i;
  }

  /** True for a time that the reader wants; sets `isFinished`. The texts sort as the times do. */
  #checkTime(): boolean {
    if (this.#until && this.#until.compare(this.#time, 0, TIME_BYTES) < 0) this.isFinished = true;
    return !this.#since || this.#since.compare(this.#time, 0, TIME_BYTES) <= 0;
  }

  #unusual(line: Buffer): void {
    const record = parseRecord(line);
    if (record) {
      this.#learn(line, record);
      return this.#emit(record);
    }
    // Where a newline was lost, or a torn record precedes a whole one, the whole records are still found: their
    // beginning cannot occur within a text, because quotes are escaped there.
    let damaged = line.length;
    let from = line.indexOf(PREFIX);
    while (from >= 0 && !this.isFinished) {
      const next = line.indexOf(PREFIX, from + 1);
      const piece = line.subarray(from, next < 0 ? line.length : next);
      const last = piece.lastIndexOf('"}');
      const found = last < 0 ? undefined : parseRecord(piece.subarray(0, last + 2));
      if (found) {
        damaged -= last + 2;
        this.#emit(found);
      }
      from = next;
    }
    this.#onDamage(damaged);
  }

  /** Remembers what stands between text and time, for the next records. */
  #learn(line: Buffer, { stream, attrs }: JsonRecord): void {
    const text = line.toString('latin1');
    const match =
      /^\{"log":"(?:[^"\\]|\\.)*(","stream":"std(?:out|err)"(?:,"attrs":\{.*\})?,"time":")[-0-9T:.]+Z"\}$/.exec(text);
    if (match?.[1] === undefined) return;
    const middle = this.#middle(Buffer.from(match[1], 'latin1'), attrs);
    if (stream === 'stdout') this.#stdout = middle;
    else this.#stderr = middle;
  }

  #middle(text: string | Buffer, attrs: JsonRecord['attrs']): Middle {
    const bytes = Buffer.from(text);
    return {
      bytes,
      words: words(bytes),
      details: this.#options.details ? Buffer.from(`${renderDetails(attrs)} `) : Buffer.alloc(0),
    };
  }

  #emit({ log, stream, attrs, timeNs }: JsonRecord): void {
    this.#tailLength = 0;
    this.#time.set(Buffer.from(formatTimeFixed(timeNs)));
    if (!this.#checkTime() || this.isFinished || !this.#options[stream]) return;
    const text = Buffer.from(log);
    const middle = this.#middle('', attrs);
    const textStart = this.#textStart();
    this.#grow(textStart + text.length + middle.details.length);
    text.copy(this.#out, textStart);
    this.#frame(stream === 'stdout', middle, textStart, textStart + text.length);
  }

  /** Returns where the text of the next record goes if its details are as long as those of the last one. */
  #textStart(): number {
    return (
      this.#end + this.#headerBytes + (this.#options.timestamps ? TIME_PREFIX_BYTES : 0) + this.#stdout.details.length
    );
  }

  #grow(needed: number): void {
    if (needed <= this.#out.length) return;
    const grown = Buffer.allocUnsafeSlow(needed * 2);
    this.#out.copy(grown);
    this.#out = grown;
    this.#outWords = words(grown);
  }
}

function words(buffer: Buffer): DataView {
  return new DataView(buffer.buffer, buffer.byteOffset, buffer.length);
}

function hex4(block: Buffer, at: number): number {
  let code = 0;
  for (let k = 0; k < 4; k++) {
    const digit = HEX_VALUE[block[at + k] as number] as number;
    if (digit < 0) return -1;
    code = (code << 4) | digit;
  }
  return code;
}

function writeRune(out: Buffer, start: number, code: number): number {
  let o = start;
  if (code < 0x80) out[o++] = code;
  else {
    if (code < 0x800) out[o++] = 0xc0 | (code >> 6);
    else {
      out[o++] = 0xe0 | (code >> 12);
      out[o++] = 0x80 | ((code >> 6) & 0x3f);
    }
    out[o++] = 0x80 | (code & 0x3f);
  }
  return o;
}
