/** Reads any tar while its bytes arrive and hands each entry to a visitor. What entries mean is the visitor's business. */
import { invalid } from '../../errors/engine-error.js';
import { BLOCK_SIZE, emptyHeader, isZeroBlock, readHeader, type TarHeader } from './header.js';
import { applyExtended, readPax, type Extended } from './pax.js';

/** Limit of an extended header, as in Go's archive/tar. */
const MAX_META_BYTES = 1024 * 1024;

/** Takes the content of one entry. The chunk of `data` is the visitor's to keep only as long as the call lasts. */
export interface EntrySink {
  data(chunk: Buffer): void | Promise<void>;
  end(): void | Promise<void>;
}

/** @returns where the content goes; undefined: it is skipped. The header is reused for the next entry. */
export type VisitEntry = (header: Readonly<TarHeader>) => EntrySink | undefined | Promise<EntrySink | undefined>;

type Phase = 'header' | 'meta' | 'content' | 'padding' | 'trailer';

export class TarReader {
  readonly #visit: VisitEntry;
  readonly #header = emptyHeader();
  readonly #block = Buffer.alloc(BLOCK_SIZE);
  #blockUsed = 0;
  #phase: Phase = 'header';
  #left = 0;
  #padding = 0;
  #sawZeroBlock = false;
  #entries = 0;
  #meta = Buffer.alloc(0);
  #metaType = '';
  #extended: Extended | undefined;
  /** GNU long names, which win over PAX records. */
  #longName: string | undefined;
  #longLink: string | undefined;
  #sink: EntrySink | undefined;

  constructor(visit: VisitEntry) {
    this.#visit = visit;
  }

  /** Entries begun so far. */
  get entries(): number {
    return this.#entries;
  }

  /** Takes the next bytes, in any portions. @throws EngineError invalid for what is no tar; what the visitor throws. */
  async write(chunk: Buffer): Promise<void> {
    for (let at = 0; at < chunk.length; ) {
      if (this.#phase === 'trailer') return;
      if (this.#phase === 'header') {
        const end = Math.min(chunk.length, at + BLOCK_SIZE - this.#blockUsed);
        this.#blockUsed += chunk.copy(this.#block, this.#blockUsed, at, end);
        at = end;
        if (this.#blockUsed < BLOCK_SIZE) continue;
        this.#blockUsed = 0;
        await this.#readBlock();
        continue;
      }
      const end = Math.min(chunk.length, at + this.#left);
      if (this.#phase === 'meta') chunk.copy(this.#meta, this.#meta.length - this.#left, at, end);
      if (this.#phase === 'content' && this.#sink) {
        const taken = this.#sink.data(chunk.subarray(at, end));
        if (taken) await taken;
      }
      this.#left -= end - at;
      at = end;
      if (this.#left === 0) await this.#endPhase();
    }
  }

  /** Call after the last byte. @throws EngineError invalid for a tar that is cut off or empty. */
  end(): void {
    const isBetween = this.#phase === 'header' && this.#blockUsed === 0 && !this.#extended && this.#longName === undefined && this.#longLink === undefined;
    const isComplete = isBetween || this.#phase === 'trailer' || this.#phase === 'padding';
    if (!isComplete || (this.#entries === 0 && !this.#sawZeroBlock)) throw invalid('unexpected end of tar', { code: 'TAR_TRUNCATED' });
  }

  async #readBlock(): Promise<void> {
    const header = this.#header;
    if (isZeroBlock(this.#block, 0)) {
      if (this.#sawZeroBlock) this.#phase = 'trailer';
      this.#sawZeroBlock = true;
      return;
    }
    if (this.#sawZeroBlock) throw invalid('tar header expected, not a block after the end', { code: 'TAR_HEADER' });
    readHeader(this.#block, 0, header);
    switch (header.type) {
      case 'x':
      case 'L':
      case 'K':
        if (header.sizeBytes > MAX_META_BYTES) throw invalid('tar has an extended header that is too large', { code: 'TAR_PAX' });
        this.#metaType = header.type;
        this.#meta = Buffer.allocUnsafe(header.sizeBytes);
        return this.#begin('meta', header.sizeBytes);
      case 'g':
        this.#sink = undefined;
        return this.#begin('content', header.sizeBytes);
      case 'S':
        throw invalid('tar has a sparse file, which is not supported', { code: 'TAR_SPARSE' });
      default:
        return this.#beginEntry();
    }
  }

  async #beginEntry(): Promise<void> {
    const header = this.#header;
    if (this.#extended) applyExtended(header, this.#extended);
    header.name = this.#longName ?? header.name;
    header.linkName = this.#longLink ?? header.linkName;
    this.#extended = this.#longName = this.#longLink = undefined;
    if (header.type === '\0' || header.type === '7') header.type = header.name.endsWith('/') ? '5' : '0';
    // Only files are followed by content, whatever the size field of another type says.
    if (header.type !== '0') header.sizeBytes = 0;
    this.#entries++;
    this.#sink = await this.#visit(header);
    await this.#begin('content', header.sizeBytes);
  }

  async #begin(phase: Phase, sizeBytes: number): Promise<void> {
    this.#phase = phase;
    this.#left = sizeBytes;
    this.#padding = -sizeBytes & (BLOCK_SIZE - 1);
    if (sizeBytes === 0) await this.#endPhase();
  }

  async #endPhase(): Promise<void> {
    const ended = this.#phase;
    this.#phase = this.#padding > 0 ? 'padding' : 'header';
    this.#left = this.#padding;
    this.#padding = 0;
    if (ended === 'meta') this.#endMeta();
    if (ended !== 'content') return;
    const sink = this.#sink;
    this.#sink = undefined;
    await sink?.end();
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
}
