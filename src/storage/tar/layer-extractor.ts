/**
 * Unpacks one layer's tar into an overlay difference directory while its bytes arrive, and writes the tar-split beside
 * it. Synchronous, for worker threads. Whiteouts become overlayfs' own (OCI image layer specification, "Whiteouts").
 */
import { closeSync, constants, fchmodSync, fchownSync, fstatSync, openSync } from 'node:fs';
import { internal, invalid } from '../../errors/engine-error.js';
import type { IdMaps } from '../../ports/id-maps.js';
import { hostOwner, ownerOnHost, rootOwner } from '../../sys/users/id-maps.js';
import { setOpenFileTimes } from '../../sys/files/inode.js';
import { isLarge, SpaceAhead } from '../../sys/files/space-ahead.js';
import { toText } from '../byte-path.js';
import { withCapabilityRoot } from '../file-capabilities.js';
import { storageError } from '../storage-error.js';
import { cleanName } from './entry-name.js';
import { emptyHeader, type TarHeader } from './header.js';
import { LayerTree, setXattrs } from './layer-tree.js';
import { SplitWriter, writeAll } from './split-writer.js';
import { isFileEntry, TarParser, type TarSink } from './tar-parser.js';

export interface LayerExtractorOptions {
  /** An existing, empty directory that nobody else changes. Its own attributes are set too. */
  readonly diffDir: string;
  /** A file to be created. */
  readonly tarSplitPath: string;
  /** A tar of more bytes is refused. Default: no limit. */
  readonly limitBytes?: number;
  /** Maps the tar's owners to this host. Default: they are the same. */
  readonly idMaps?: IdMaps | undefined;
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

const WHITEOUT = '.wh.';
const WHITEOUT_META = '.wh..wh.';
const WHITEOUT_OPAQUE = '.wh..wh..opq';
const PERMISSIONS = 0o777;
const CREATE = constants.O_WRONLY | constants.O_CREAT | constants.O_EXCL | constants.O_NOFOLLOW;

export class LayerExtractor implements TarSink {
  readonly #tree: LayerTree;
  readonly #split: SplitWriter;
  readonly #limitBytes: number;
  readonly #idMaps: IdMaps | undefined;
  readonly #parser = new TarParser(this);
  /** Header of the entry under way. */
  #header: TarHeader = emptyHeader();
  /** The file being written. */
  #fd = -1;
  /** Bytes that the file under way has so far, and what asks for its space if it is large. */
  #fileBytes = 0;
  #space: SpaceAhead | undefined;
  #path = '';
  /** Modes that a new file is asked for, and whether it has them then: the umask and access lists may be in the way. */
  readonly #modes = new Map<number, boolean>();
  #xattrs: ReadonlyMap<string, Buffer> | undefined;
  #sizeBytes = 0;
  #tarBytes = 0;
  #entries = 0;
  #closed = false;

  /** @throws an errno error when the tar-split file cannot be created. */
  constructor({ diffDir, tarSplitPath, limitBytes = Number.MAX_SAFE_INTEGER, idMaps }: LayerExtractorOptions) {
    this.#tree = new LayerTree(diffDir, tarSplitPath, rootOwner(idMaps));
    this.#split = new SplitWriter(tarSplitPath);
    this.#limitBytes = limitBytes;
    this.#idMaps = idMaps;
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
      this.#parser.write(chunk);
    });
  }

  /** Completes the layer after the last byte. @throws EngineError as `write`; invalid for a tar that is cut off. */
  finish(): ExtractResult {
    return this.#guarded(() => {
      this.#parser.finish();
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
      throw storageError(
        error,
        this.#entries === 0 ? 'unpacking layer' : `unpacking ${JSON.stringify(toText(this.#parser.lastName))}`,
      );
    }
  }

  /** These four are called by the parser only. */
  raw(chunk: Buffer, start: number, end: number): void {
    this.#split.raw(chunk, start, end);
  }

  content(chunk: Buffer, start: number, end: number): void {
    const from = this.#fileBytes;
    this.#fileBytes += end - start;
    this.#space?.willWrite(from, this.#fileBytes);
    writeAll(this.#fd, chunk, start, end);
  }

  entry(header: TarHeader, xattrs: ReadonlyMap<string, Buffer> | undefined): boolean {
    this.#header = header;
    this.#xattrs = xattrs;
    this.#entries++;
    const name = cleanName(header.name);
    if (this.#placeWhiteout(name)) return false;
    if (this.#idMaps) this.#mapOwner(this.#idMaps);
    else ownerOnHost(undefined, this.#header);
    if (!isFileEntry(header)) {
      this.#makeEntry(name);
      return false;
    }
    this.#beginFile(name);
    return true;
  }

  #mapOwner(idMaps: IdMaps): void {
    Object.assign(this.#header, hostOwner(idMaps, this.#header));
    this.#xattrs = withCapabilityRoot(this.#xattrs, rootOwner(idMaps).uid);
  }

  /**
   * Makes a whiteout for an entry that stands for a deletion, and ignores metadata of another storage driver. True for
   * such entries.
   */
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
    if (hidden === '' || hidden === '.' || hidden === '..')
      throw invalid('whiteout of no file', { code: 'TAR_WHITEOUT' });
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
      this.#fd = openSync(at, CREATE, this.#header.mode & PERMISSIONS);
    });
    const { sizeBytes } = this.#header;
    this.#sizeBytes += sizeBytes;
    this.#fileBytes = 0;
    this.#space = isLarge(sizeBytes) ? new SpaceAhead(this.#fd, sizeBytes) : undefined;
    if (sizeBytes > 0) this.#split.file(this.#path, sizeBytes);
  }

  contentEnd(): void {
    const { uid, gid, mode, mtimeSeconds, mtimeNanoseconds } = this.#header;
    // The order matters: a change of owner removes setuid bits and capabilities.
    if (uid !== 0 || gid !== 0) fchownSync(this.#fd, uid, gid);
    if (!this.#hasMode(mode)) fchmodSync(this.#fd, mode);
    if (this.#xattrs) setXattrs(this.#tree.at(this.#path), this.#xattrs);
    setOpenFileTimes(this.#fd, mtimeSeconds, mtimeNanoseconds);
    const fd = this.#fd;
    this.#fd = -1;
    closeSync(fd);
  }

  /** Tells whether the new file has its mode already. Layers have few modes, so the kernel is asked once for each. */
  #hasMode(mode: number): boolean {
    const known = this.#modes.get(mode);
    if (known !== undefined) return known;
    const hasMode = (fstatSync(this.#fd).mode & 0o7777) === mode;
    this.#modes.set(mode, hasMode);
    return hasMode;
  }
}
