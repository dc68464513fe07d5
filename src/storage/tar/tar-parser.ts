/**
 * Reads a tar while its bytes arrive: headers with their extensions become entries, other bytes are handed on.
 * Synchronous.
 */
import { invalid } from '../../errors/engine-error.js';
import { BLOCK_SIZE, emptyHeader, isZeroBlock, readHeader, type TarHeader } from './header.js';
import { applyExtended, readPax, type Extended } from './pax.js';

/** The sink receives the archive. Chunks may be reused after each call. */
export interface TarSink {
  /** Gets all bytes of the archive, in order, except those that go to `content`. */
  raw(chunk: Buffer, start: number, end: number): void;
  /**
   * Gets an entry, whose header is reused for the next one. If it returns true, `content` follows until all `sizeBytes`
   * have come, and then `contentEnd`, also for an empty file.
   */
  entry(header: TarHeader, xattrs: ReadonlyMap<string, Buffer> | undefined): boolean;
  content(chunk: Buffer, start: number, end: number): void;
  contentEnd(): void;
}

/** Limit of an extended header, as in Go's archive/tar and so in the Docker engine. */
const MAX_META_BYTES = 1024 * 1024;
/** The data that rebuild the tar of a layer store lengths in 48 bits; no file system holds longer files. */
const MAX_FILE_BYTES = 2 ** 48 - 1;
/** An error shows so many characters of a name. */
const MAX_SHOWN_NAME = 256;

/** The next bytes belong to this part. */
type Phase = 'header' | 'meta' | 'content' | 'skipped' | 'padding' | 'trailer';

/** True for a file. Only files are followed by content, whatever the size field of another type says. */
export function isFileEntry({ type, name }: TarHeader): boolean {
  return type === '0' || type === '7' || (type === '\0' && !name.endsWith('/'));
}

export class TarParser {
  readonly #sink: TarSink;
  readonly #header = emptyHeader();
  /** Collects a header block that comes in pieces. */
  readonly #block = Buffer.alloc(BLOCK_SIZE);
  #blockUsed = 0;
  #phase: Phase = 'header';
  /** Bytes that the phase still needs. */
  #left = 0;
  /** Padding that follows the content under way. */
  #padding = 0;
  #sawZeroBlock = false;
  #meta: Buffer = Buffer.alloc(0);
  #metaType = '';
  #extended: Extended | undefined;
  /** GNU long names, which win over PAX records. */
  #longName: string | undefined;
  #longLink: string | undefined;

  constructor(sink: TarSink) {
    this.#sink = sink;
  }

  /** Name of the entry that was read last, a byte string. */
  get lastName(): string {
    return this.#header.name;
  }

  /**
   * Takes the next bytes, in any portions. @throws EngineError invalid for a malformed tar, and what the sink throws.
   */
  write(chunk: Buffer): void {
    for (let at = 0; at < chunk.length;) at = this.step(chunk, at);
  }

  /** Ends the tar, after the last byte. @throws EngineError invalid for a tar that is cut off. */
  finish(): void {
    // The padding of the last file and the zero blocks at the end may be missing, as for other readers.
    const atBoundary = this.#phase === 'header' && this.#blockUsed === 0 && !this.#awaitsEntry();
    if (!atBoundary && this.#phase !== 'padding' && this.#phase !== 'trailer') throw truncated();
  }

  /**
   * Does the same as `write`, but takes only some bytes from `at` on: it calls `content` at most once, and `contentEnd`
   * after it. @returns where the next bytes are.
   */
  step(chunk: Buffer, at: number): number {
    if (this.#phase === 'header') return this.#takeHeader(chunk, at);
    if (this.#phase === 'trailer') {
      this.#sink.raw(chunk, at, chunk.length);
      return chunk.length;
    }
    const end = Math.min(chunk.length, at + this.#left);
    if (this.#phase === 'content') this.#sink.content(chunk, at, end);
    else this.#sink.raw(chunk, at, end);
    if (this.#phase === 'meta') chunk.copy(this.#meta, this.#meta.length - this.#left, at, end);
    this.#left -= end - at;
    if (this.#left === 0) this.#endPhase();
    return end;
  }

  #takeHeader(chunk: Buffer, at: number): number {
    if (this.#blockUsed === 0 && chunk.length - at >= BLOCK_SIZE) {
      this.#readBlock(chunk, at);
      return at + BLOCK_SIZE;
    }
    const end = Math.min(chunk.length, at + BLOCK_SIZE - this.#blockUsed);
    this.#blockUsed += chunk.copy(this.#block, this.#blockUsed, at, end);
    if (this.#blockUsed === BLOCK_SIZE) {
      this.#blockUsed = 0;
      this.#readBlock(this.#block, 0);
    }
    return end;
  }

  #readBlock(block: Buffer, at: number): void {
    this.#sink.raw(block, at, at + BLOCK_SIZE);
    if (isZeroBlock(block, at)) {
      if (this.#awaitsEntry()) throw truncated();
      if (this.#sawZeroBlock) this.#phase = 'trailer';
      this.#sawZeroBlock = true;
      return;
    }
    if (this.#sawZeroBlock) throw invalid('tar header expected, not a block after the end', { code: 'TAR_HEADER' });
    const header = this.#header;
    readHeader(block, at, header);
    switch (header.type) {
      case 'x':
      case 'L':
      case 'K':
        if (header.sizeBytes > MAX_META_BYTES)
          throw invalid('tar has an extended header that is too large', { code: 'TAR_PAX' });
        this.#metaType = header.type;
        this.#meta = Buffer.allocUnsafe(header.sizeBytes);
        this.#begin('meta', header.sizeBytes);
        return;
      case 'g': // defaults for the entries that follow: other engines ignore them, and so the layer would differ
        this.#begin('skipped', header.sizeBytes);
        return;
      default:
        this.#beginEntry();
    }
  }

  #awaitsEntry(): boolean {
    return this.#extended !== undefined || this.#longName !== undefined || this.#longLink !== undefined;
  }

  #begin(phase: Phase, sizeBytes: number): void {
    this.#phase = phase;
    this.#left = sizeBytes;
    this.#padding = -sizeBytes & (BLOCK_SIZE - 1);
    if (sizeBytes === 0) this.#endPhase();
  }

  #endPhase(): void {
    if (this.#phase === 'meta') this.#endMeta();
    if (this.#phase === 'content') this.#sink.contentEnd();
    this.#phase = this.#padding > 0 ? 'padding' : 'header';
    this.#left = this.#padding;
    this.#padding = 0;
  }

  #endMeta(): void {
    if (this.#metaType === 'x') {
      this.#extended = readPax(this.#meta);
      return;
    }
    const nul = this.#meta.indexOf(0);
    const text = this.#meta.toString('latin1', 0, nul < 0 ? this.#meta.length : nul);
    if (this.#metaType === 'L') this.#longName = text;
    else this.#longLink = text;
  }

  #beginEntry(): void {
    const header = this.#header;
    const extended = this.#extended;
    if (extended) applyExtended(header, extended);
    header.name = this.#longName ?? header.name;
    header.linkName = this.#longLink ?? header.linkName;
    this.#extended = this.#longName = this.#longLink = undefined;
    if (header.sizeBytes > MAX_FILE_BYTES)
      throw invalid(`tar entry ${quotedName(header.name)} has a size out of range: ${header.sizeBytes}`, {
        code: 'TAR_HEADER',
      });
    const isFile = isFileEntry(header);
    const isWanted = this.#sink.entry(header, extended?.xattrs);
    this.#begin(isWanted && isFile ? 'content' : 'skipped', isFile ? header.sizeBytes : 0);
  }
}

function quotedName(name: string): string {
  return JSON.stringify(Buffer.from(name.slice(0, MAX_SHOWN_NAME), 'latin1').toString());
}

function truncated(): Error {
  return invalid('unexpected EOF', { code: 'TAR_TRUNCATED' });
}
