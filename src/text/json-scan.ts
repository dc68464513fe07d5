/**
 * Scans JSON text before it is parsed, piece by piece as it arrives: it measures how deep the text goes and how much is
 * in it. So a text that would hold up other requests is refused while it is still only bytes. It makes one pass and
 * keeps nothing of the text.
 */
import { invalid, type EngineError } from '../errors/engine-error.js';

export interface JsonLimits {
  /** This limits the length of the text. */
  readonly bytes: number;
  /** This limits how deep arrays and objects are nested. */
  readonly depth: number;
  /** This limits the elements of all arrays plus the members of all objects. */
  readonly values: number;
  /** This limits the elements or members of one array or object. */
  readonly members: number;
}

const QUOTE = 0x22;
const COMMA = 0x2c;
const BACKSLASH = 0x5c;

const isBlank = (byte: number): boolean => byte === 0x20 || byte === 0x09 || byte === 0x0a || byte === 0x0d;
const isOpening = (byte: number): boolean => byte === 0x5b || byte === 0x7b;
const isClosing = (byte: number): boolean => byte === 0x5d || byte === 0x7d;

export class JsonScan {
  readonly #limits: JsonLimits;
  /** Commas so far in each array or object that is open. */
  readonly #open: number[] = [];
  #bytes = 0;
  #values = 0;
  #where: 'before' | 'inside' | 'behind' = 'before';
  #isInString = false;
  #isEscaped = false;
  /** The value at the top is a number or a word, which ends where something else begins. */
  #isWord = false;
  #firstEnd: number | undefined;

  constructor(limits: JsonLimits) {
    this.#limits = limits;
  }

  /** Only blanks have come so far. */
  get isEmpty(): boolean {
    return this.#where === 'before';
  }

  /** Elements and members so far; an array or object without any counts as one. */
  get values(): number {
    return this.#values;
  }

  /** Where the first complete value ends, when something else follows it. */
  get firstEnd(): number | undefined {
    return this.#firstEnd;
  }

  /** Checks a length that is known before the text. @throws EngineError invalid with code BODY_TOO_LARGE. */
  expect(bytes: number): void {
    if (this.#bytes + bytes > this.#limits.bytes) throw tooLarge(this.#limits.bytes);
  }

  /** @throws EngineError invalid when the text goes beyond a limit; code BODY_TOO_LARGE for its length. */
  take(piece: Uint8Array): void {
    this.expect(piece.length);
    for (let at = 0; at < piece.length; at++) {
      if (this.#where === 'behind') break;
      if (this.#isInString) at = this.#skipString(piece, at);
      else this.#takeByte(piece[at] ?? 0, this.#bytes + at);
    }
    this.#bytes += piece.length;
  }

  /** Returns the index of the last byte of the string in this piece. */
  #skipString(piece: Uint8Array, from: number): number {
    for (let at = from; at < piece.length; at++) {
      const byte = piece[at];
      if (this.#isEscaped) {
        this.#isEscaped = false;
      } else if (byte === BACKSLASH) {
        this.#isEscaped = true;
      } else if (byte === QUOTE) {
        this.#isInString = false;
        return at;
      }
    }
    return piece.length;
  }

  #takeByte(byte: number, position: number): void {
    if (this.#open.length === 0) this.#takeTopByte(byte, position);
    if (this.#where === 'behind') return;
    if (byte === QUOTE) {
      this.#isInString = true;
    } else if (byte === COMMA) {
      this.#count();
    } else if (isOpening(byte)) {
      if (this.#open.length === this.#limits.depth) throw tooMuch(`exceeded max depth of ${this.#limits.depth}`);
      this.#open.push(1);
      if (++this.#values > this.#limits.values) throw this.#tooMany();
    } else if (isClosing(byte)) {
      this.#open.pop();
    }
  }

  /** Takes a byte outside of every array and object, to find the end of the first value. */
  #takeTopByte(byte: number, position: number): void {
    if (isBlank(byte)) {
      this.#isWord = false;
      return;
    }
    const isStructure = byte === QUOTE || byte === COMMA || isOpening(byte) || isClosing(byte);
    if (this.#where === 'before') {
      this.#where = 'inside';
      this.#isWord = !isStructure;
    } else if (isStructure || !this.#isWord) {
      this.#where = 'behind';
      this.#firstEnd = position;
    }
  }

  #count(): void {
    const last = this.#open.length - 1;
    if (last < 0) return;
    const members = (this.#open[last] ?? 0) + 1;
    this.#open[last] = members;
    if (members > this.#limits.members)
      throw tooMuch(`more than ${this.#limits.members} members in one array or object`);
    if (++this.#values > this.#limits.values) throw this.#tooMany();
  }

  #tooMany(): EngineError {
    return tooMuch(`more than ${this.#limits.values} values`);
  }
}

function tooLarge(limitBytes: number): EngineError {
  return invalid(`request body is larger than ${limitBytes} bytes`, { code: 'BODY_TOO_LARGE' });
}

function tooMuch(what: string): EngineError {
  return invalid(`invalid JSON: ${what}`, { code: 'BODY_JSON' });
}
