/**
 * Unpacks one layer's tar into an overlay difference directory while its bytes arrive, and writes the tar-split beside
 * it. Synchronous, for worker threads. Whiteouts become overlayfs' own (OCI image layer specification, "Whiteouts").
 */
import { closeSync, constants, fchmodSync, fchownSync, openSync } from 'node:fs';
import { internal, invalid } from '../../errors/engine-error.js';
import { setOpenFileTimes } from '../../sys/inode.js';
import { toText } from '../byte-path.js';
import { storageError } from '../storage-error.js';
import { cleanName } from './entry-name.js';
import { BLOCK_SIZE, emptyHeader, isZeroBlock, readHeader } from './header.js';
import { LayerTree, setXattrs } from './layer-tree.js';
import { applyExtended, readPax, type Extended } from './pax.js';
import { SplitWriter, writeAll } from './split-writer.js';

export interface LayerExtractorOptions {
  /** An existing, empty directory that nobody else changes. Its own attributes are set too. */
  readonly diffDir: string;
  /** A file to be created. */
  readonly tarSplitPath: string;
  /** Refuses a tar of more bytes. Default: no limit. */
  readonly limitBytes?: number;
}

export interface ExtractResult {
  /** Bytes of regular files. */
  readonly sizeBytes: number;
  readonly tarBytes: number;
  readonly entries: number;
  /** These as `StagedLayer.commit` takes them: byte strings, one character per byte. */
  readonly implicitDirs: readonly string[];
  readonly danglingLinks: readonly { readonly path: string; readonly target: string }[];
  readonly whiteouts: readonly string[];
}

/** Limit of an extended header, as in Go's archive/tar and so in the Docker engine. */
const MAX_META_BYTES = 1024 * 1024;
const WHITEOUT = '.wh.';
const WHITEOUT_META = '.wh..wh.';
const WHITEOUT_OPAQUE = '.wh..wh..opq';
const CREATE = constants.O_WRONLY | constants.O_CREAT | constants.O_EXCL | constants.O_NOFOLLOW;

/** What the next bytes are. */
type Phase = 'header' | 'meta' | 'file' | 'skipped' | 'padding' | 'trailer';

export class LayerExtractor {
  readonly #tree: LayerTree;
  readonly #split: SplitWriter;
  readonly #limitBytes: number;
  readonly #header = emptyHeader();
  /** Collects a header block that comes in pieces. */
  readonly #block = Buffer.alloc(BLOCK_SIZE);
  #blockUsed = 0;
  #phase: Phase = 'header';
  /** Bytes that the phase still waits for. */
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
  /** The file being written. */
  #fd = -1;
  #path = '';
  #xattrs: ReadonlyMap<string, Buffer> | undefined;
  #sizeBytes = 0;
  #tarBytes = 0;
  #entries = 0;
  #closed = false;

  /** @throws an errno error when the tar-split file cannot be created. */
  constructor({ diffDir, tarSplitPath, limitBytes = Number.MAX_SAFE_INTEGER }: LayerExtractorOptions) {
    this.#tree = new LayerTree(diffDir, tarSplitPath);
    this.#split = new SplitWriter(tarSplitPath);
    this.#limitBytes = limitBytes;
  }

  /**
   * Takes the next bytes of the tar, in any portions; the chunk may be reused afterwards. After an error the extractor
   * is closed, and what it made is the caller's to delete.
   * @throws EngineError invalid for a tar that is malformed, too large or reaches outside; internal with the errno's
   * name as code (`ENOSPC` and the like) when this host fails.
   */
  write(chunk: Buffer): void {
    this.#guarded(() => {
      this.#tarBytes += chunk.length;
      if (this.#tarBytes > this.#limitBytes) {
        throw invalid(`layer is larger than ${this.#limitBytes} bytes`, { code: 'LAYER_TOO_LARGE' });
      }
      for (let at = 0; at < chunk.length; ) at = this.#step(chunk, at);
    });
  }

  /** Completes the layer after the last byte. @throws EngineError as `write`; invalid for a tar that is cut off. */
  finish(): ExtractResult {
    return this.#guarded(() => {
      // As other readers do, the padding of the last file and the zero blocks at the end are not insisted on.
      const atBoundary = this.#phase === 'header' && this.#blockUsed === 0 && !this.#awaitsEntry();
      if (!atBoundary && this.#phase !== 'padding' && this.#phase !== 'trailer') {
        throw invalid('unexpected end of tar', { code: 'TAR_TRUNCATED' });
      }
      const late = this.#tree.finish();
      this.#split.end(this.#tarBytes);
      this.#closed = true;
      return { sizeBytes: this.#sizeBytes, tarBytes: this.#tarBytes, entries: this.#entries, ...late };
    });
  }

  /** Closes what is open without completing the layer. Idempotent. */
  abort(): void {
    this.#closed = true;
    if (this.#fd >= 0) closeSync(this.#fd);
    this.#fd = -1;
    this.#split.close();
  }

  #guarded<T>(work: () => T): T {
    if (this.#closed) throw internal('the layer extractor is closed');
    try {
      return work();
    } catch (error) {
      this.abort();
      throw storageError(error, this.#entries === 0 ? 'unpacking layer' : `unpacking ${JSON.stringify(toText(this.#header.name))}`);
    }
  }

  /** Consumes some bytes from `at` on and returns where the next ones are. */
  #step(chunk: Buffer, at: number): number {
    if (this.#phase === 'header') return this.#takeHeader(chunk, at);
    if (this.#phase === 'trailer') {
      this.#split.raw(chunk, at, chunk.length);
      return chunk.length;
    }
    const end = Math.min(chunk.length, at + this.#left);
    if (this.#phase === 'file') writeAll(this.#fd, chunk, at, end);
    else this.#split.raw(chunk, at, end);
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
    this.#split.raw(block, at, at + BLOCK_SIZE);
    if (isZeroBlock(block, at)) {
      if (this.#awaitsEntry()) throw invalid('unexpected end of tar', { code: 'TAR_TRUNCATED' });
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
        if (header.sizeBytes > MAX_META_BYTES) throw invalid('tar has an extended header that is too large', { code: 'TAR_PAX' });
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
    if (this.#phase === 'file') this.#endFile();
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
    if (this.#extended) applyExtended(header, this.#extended);
    header.name = this.#longName ?? header.name;
    header.linkName = this.#longLink ?? header.linkName;
    this.#xattrs = this.#extended?.xattrs;
    this.#extended = this.#longName = this.#longLink = undefined;
    this.#entries++;
    // Only files are followed by content, whatever the size field of another type says.
    const isFile = header.type === '0' || header.type === '7' || (header.type === '\0' && !header.name.endsWith('/'));
    const name = cleanName(header.name);
    const isPlaced = !this.#placeWhiteout(name);
    if (isPlaced && isFile) this.#beginFile(name);
    else if (isPlaced) this.#makeEntry(name);
    this.#begin(isPlaced && isFile ? 'file' : 'skipped', isFile ? header.sizeBytes : 0);
  }

  /** True for an entry that stands for a deletion, or for metadata of another storage driver, which is ignored. */
  #placeWhiteout(name: string): boolean {
    if (!name.includes(WHITEOUT)) return false;
    const slash = name.lastIndexOf('/');
    const base = name.slice(slash + 1);
    const isMeta = name.startsWith(WHITEOUT_META) || name.includes(`/${WHITEOUT_META}`);
    if (isMeta) {
      const parent = name.slice(0, Math.max(slash, 0));
      if (base === WHITEOUT_OPAQUE && !`/${parent}`.includes(`/${WHITEOUT_META}`)) this.#tree.makeOpaque(parent);
      return true;
    }
    if (!base.startsWith(WHITEOUT)) return false;
    const hidden = base.slice(WHITEOUT.length);
    if (hidden === '' || hidden === '.' || hidden === '..') throw invalid('whiteout of no file', { code: 'TAR_WHITEOUT' });
    this.#tree.makeWhiteout(this.#tree.place(name.slice(0, slash + 1) + hidden));
    return true;
  }

  #makeEntry(name: string): void {
    const header = this.#header;
    switch (header.type) {
      case '5':
      case '\0':
        this.#tree.makeDirectory(this.#tree.place(name), header, this.#xattrs);
        return;
      case '1':
        this.#tree.makeHardLink(this.#tree.place(name), cleanName(header.linkName));
        return;
      case '2':
        this.#tree.makeSymlink(this.#tree.place(name), header, this.#xattrs);
        return;
      case '3':
      case '4':
      case '6':
        this.#tree.makeNode(this.#tree.place(name), header, this.#xattrs);
        return;
      case 'S':
        throw invalid('tar has a sparse file, which is not supported', { code: 'TAR_SPARSE' });
      default:
        throw invalid(`tar has an entry of the unknown type ${JSON.stringify(header.type)}`, { code: 'TAR_TYPE' });
    }
  }

  #beginFile(name: string): void {
    this.#path = this.#tree.place(name);
    const at = this.#tree.at(this.#path);
    this.#tree.makeFile(this.#path, () => {
      this.#fd = openSync(at, CREATE, 0o600);
    });
    const { sizeBytes } = this.#header;
    this.#sizeBytes += sizeBytes;
    if (sizeBytes > 0) this.#split.file(this.#path, sizeBytes);
  }

  #endFile(): void {
    const { uid, gid, mode, mtimeSeconds, mtimeNanoseconds } = this.#header;
    // In this order: a change of owner takes setuid bits and capabilities away.
    if (uid !== 0 || gid !== 0) fchownSync(this.#fd, uid, gid);
    fchmodSync(this.#fd, mode);
    if (this.#xattrs) setXattrs(this.#tree.at(this.#path), this.#xattrs);
    setOpenFileTimes(this.#fd, mtimeSeconds, mtimeNanoseconds);
    const fd = this.#fd;
    this.#fd = -1;
    closeSync(fd);
  }
}
