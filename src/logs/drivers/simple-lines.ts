/**
 * Encodes lines that have nothing to escape, for the json-file driver, with the processor's wide instructions: a
 * program for WebAssembly (simple-lines.wat), in whose memory source and output have their places.
 */
import { MAX_LINE_BYTES } from './record-format.js';
import { CODE } from './simple-lines-code.js';

/**
 * Places in the memory of 256 KiB. A line that does not end in the source is looked for in what is behind it, but not
 * taken.
 */
const SOURCE_BYTES = 48 * 1024;
const SUFFIX_AT = 52 * 1024;
const OUT_AT = 56 * 1024;
const MOST_SUFFIX_BYTES = OUT_AT - SUFFIX_AT - 16;
/** A record that begins before this ends in the memory. */
const OUT_LIMIT = 256 * 1024 - MAX_LINE_BYTES - MOST_SUFFIX_BYTES - 64;

interface Program {
  readonly memory: { readonly buffer: ArrayBuffer };
  readonly end: { readonly value: number };
  encode(
    at: number,
    size: number,
    out: number,
    limit: number,
    suffix: number,
    suffixLength: number,
    most: number,
  ): number;
}

/** The part of WebAssembly that is used here, which Node's types leave to those of browsers. */
declare const WebAssembly: {
  Module: new (code: Uint8Array) => object;
  Instance: new (module: object) => { readonly exports: object };
};

export class SimpleLines {
  /** The end of what `encode` wrote. */
  end = 0;
  readonly #program = new WebAssembly.Instance(new WebAssembly.Module(Buffer.from(CODE, 'base64'))).exports as Program;
  #suffixLength = 0;
  readonly #memory = Buffer.from(this.#program.memory.buffer);

  /** Returns undefined where the processor has no such instructions, or the process may not reserve the memory. */
  static make(): SimpleLines | undefined {
    try {
      return new SimpleLines();
    } catch {
      return undefined;
    }
  }

  /** Tells whether the bytes behind the text of each line are few enough. */
  static takes(suffix: Buffer): boolean {
    return suffix.length <= MOST_SUFFIX_BYTES;
  }

  /** Sets the bytes behind the text of each line, until it is called again. */
  begin(suffix: Buffer): void {
    this.#suffixLength = suffix.copy(this.#memory, SUFFIX_AT);
  }

  /**
   * Encodes the complete lines from `from` on, up to one that has a byte to escape or that is too long, and as long as
   * the next one begins before `limit` of `out`; there must be room for the largest record behind it. Returns the end
   * in `source`, after 48 KiB at most, and sets `end`.
   */
  encode(source: Buffer, from: number, out: Buffer, at: number, limit: number): number {
    const memory = this.#memory;
    const size = source.copy(memory, 0, from, from + SOURCE_BYTES);
    const outLimit = Math.min(OUT_AT + limit - at, OUT_LIMIT);
    const taken = this.#program.encode(0, size, OUT_AT, outLimit, SUFFIX_AT, this.#suffixLength, MAX_LINE_BYTES);
    this.end = at + memory.copy(out, at, OUT_AT, this.#program.end.value);
    return from + taken;
  }
}
