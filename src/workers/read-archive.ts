/**
 * Task: an archive of images, in one pass from the client's bytes to unpacked layers. What an entry is shows only in
 * the manifest, which comes last in most archives: whatever looks like a layer is unpacked into a staged one, and when
 * all is there, the small files say what images there are. Nothing is written twice.
 */
import { createHash, type Hash } from 'node:crypto';
import { closeSync, openSync, rmSync, writeSync } from 'node:fs';
import type { MessagePort } from 'node:worker_threads';
import { cancelled, invalid } from '../errors/engine-error.js';
import type { ArchiveContents, ArchivedLayer } from '../images/archive/contents.js';
import { ArchiveFiles } from '../images/archive/files.js';
import { type PlannedImage, planLoad } from '../images/archive/plan.js';
import type { IdMaps } from '../ports/id-maps.js';
import type { Digest, LayerContent } from '../ports/storage.js';
import type { Platform } from '../registry/platform.js';
import { toText } from '../storage/byte-path.js';
import { cleanName } from '../storage/tar/entry-name.js';
import { BLOCK_SIZE, emptyHeader, isZeroBlock, readHeader } from '../storage/tar/header.js';
import { LayerExtractor } from '../storage/tar/layer-extractor.js';
import { TarReader, type EntrySink } from '../storage/tar/tar-reader.js';
import { sha256 } from '../sys/ffi/sha256.js';
import { trimHeaps } from '../sys/process/memory.js';
import { createDecompressor, decompressed, type Decompressor, isCompressed } from './decompress.js';
import { failure, type Outcome } from './outcome.js';
import { receivePieces } from './receive-pieces.js';

/** Where the next layer goes; made by the main thread on demand. */
export interface ArchivePlace {
  readonly index: number;
  readonly diffDir: string;
  readonly tarSplitPath: string;
  readonly idMaps?: IdMaps | undefined;
  /** The file that gets the bytes of the layer as they are in the archive; undefined: nobody wants them. */
  readonly blobPath?: string | undefined;
}

export interface ReadArchiveInput {
  readonly port: MessagePort;
  /** Brings the archive, as `sendPieces` sends it. */
  readonly bytes: MessagePort;
  /** A layer whose plain tar is longer is refused. */
  readonly maxTarBytes: number;
  /** Only images that this platform runs are wanted; undefined: all. */
  readonly platform: Platform | undefined;
  /** If true, the images of all platforms of an index are wanted, not only that which suits this machine. */
  readonly isWhole: boolean;
  readonly host: Platform;
}

/** Messages from the main thread. */
export type ArchiveOrder = { readonly type: 'place'; readonly place: Outcome } | { readonly type: 'cancel' };

/** Messages to the main thread: a layer begins, bytes of a layer were read. Paths are cleaned byte strings. */
export type ArchiveReport =
  | { readonly type: 'layer'; readonly path: string }
  | { readonly type: 'progress'; readonly path: string; readonly bytes: number; readonly totalBytes: number };

/** Limits of one document, and of all together. */
const MAX_DOCUMENT_BYTES = 8 << 20;
const MAX_DOCUMENTS_BYTES = 64 << 20;
const MAX_ENTRIES = 100_000;
const REPORT_INTERVAL_MS = 100;

/**
 * Returns the images of the archive.
 * @throws EngineError invalid for what is no archive or has names outside of it, and as `planLoad`; data-loss;
 * cancelled on order.
 */
export async function readArchive({
  port,
  bytes,
  maxTarBytes,
  platform,
  isWhole,
  host,
}: ReadArchiveInput): Promise<readonly PlannedImage[]> {
  const link = new Link(port);
  const pieces = receivePieces(bytes);
  const contents = new ContentsReader(link, maxTarBytes);
  const reader = new TarReader((header) => contents.visit(header));
  try {
    for await (const chunk of decompressed(pieces)) await reader.write(chunk);
    reader.end();
    return planLoad(new ArchiveFiles(contents.finish()), { platform, host, isWhole });
  } catch (error) {
    throw link.isCancelled ? cancelled('the archive is not wanted any more') : error;
  } finally {
    contents.close();
    bytes.close();
    port.close();
  }
}

class Link {
  readonly #port: MessagePort;
  readonly #places: Outcome[] = [];
  isCancelled = false;
  /** Wakes who waits for a place. */
  #wake = (): void => undefined;
  #lastReport = 0;

  constructor(port: MessagePort) {
    this.#port = port;
    port.on('message', (order: ArchiveOrder) => {
      if (order.type === 'cancel') this.isCancelled = true;
      else this.#places.push(order.place);
      this.#wake();
    });
  }

  async place(path: string): Promise<ArchivePlace> {
    this.report({ type: 'layer', path });
    const place = await this.#nextPlace();
    if (!place.ok) throw invalid(place.message);
    return place.value as ArchivePlace;
  }

  report(report: ArchiveReport): void {
    this.#port.postMessage(report, []);
  }

  progress(path: string, bytes: number, totalBytes: number): void {
    const now = performance.now();
    if (bytes < totalBytes && now - this.#lastReport < REPORT_INTERVAL_MS) return;
    this.#lastReport = now;
    this.report({ type: 'progress', path, bytes, totalBytes });
  }

  async #nextPlace(): Promise<Outcome> {
    for (;;) {
      if (this.isCancelled) throw cancelled('the archive is not wanted any more');
      const next = this.#places.shift();
      if (next !== undefined) return next;
      await new Promise<void>((resolve) => (this.#wake = resolve));
    }
  }
}

class ContentsReader {
  readonly #documents = new Map<string, Buffer>();
  readonly #layers: ArchivedLayer[] = [];
  readonly #links = new Map<string, string>();
  #documentBytes = 0;
  #entries = 0;
  #open: LayerSink | undefined;

  constructor(
    private readonly link: Link,
    private readonly maxTarBytes: number,
  ) {}

  visit({
    type,
    name,
    linkName,
    sizeBytes,
  }: {
    readonly type: string;
    readonly name: string;
    readonly linkName: string;
    readonly sizeBytes: number;
  }): EntrySink | undefined {
    if (++this.#entries > MAX_ENTRIES)
      throw invalid(`the archive has more than ${MAX_ENTRIES} entries`, { code: 'ARCHIVE_TOO_LARGE' });
    const path = cleanName(name);
    if (type === '1') this.#links.set(path, cleanName(linkName));
    else if (type === '2') this.#links.set(path, symlinkTarget(path, linkName));
    if (type !== '0') return undefined;
    this.#links.delete(path);
    return this.#file(path, sizeBytes);
  }

  /** Takes a file; its first block shows what it is. */
  #file(path: string, sizeBytes: number): EntrySink {
    let head = Buffer.alloc(0);
    let layer: LayerSink | undefined;
    let document: Buffer[] | undefined;
    const begin = async (): Promise<void> => {
      if (looksLikeLayer(head)) {
        layer = this.#open = new LayerSink(path, sizeBytes, this.link, await this.link.place(path), this.maxTarBytes);
        await layer.data(head);
      } else if (sizeBytes <= MAX_DOCUMENT_BYTES) {
        this.#documentBytes += sizeBytes;
        if (this.#documentBytes > MAX_DOCUMENTS_BYTES)
          throw invalid('the archive has too many documents', { code: 'ARCHIVE_TOO_LARGE' });
        document = [head];
      } else {
        document = undefined; // nothing that a manifest may name
      }
    };
    let isBegun = false;
    return {
      data: (chunk) => {
        if (layer) return layer.data(chunk);
        if (isBegun) {
          document?.push(Buffer.from(chunk));
          return undefined;
        }
        const missing = BLOCK_SIZE - head.length;
        head = Buffer.concat([head, chunk.subarray(0, missing)]);
        if (head.length < BLOCK_SIZE) return undefined;
        isBegun = true;
        const rest = chunk.subarray(missing);
        return begin().then(() => {
          if (rest.length === 0) return undefined;
          if (layer) return layer.data(rest);
          document?.push(Buffer.from(rest));
          return undefined;
        });
      },
      end: async () => {
        if (!isBegun) await begin();
        if (layer) {
          this.#layers.push(await layer.end());
          this.#open = undefined;
        } else if (document) {
          this.#documents.set(path, Buffer.concat(document));
        }
      },
    };
  }

  finish(): ArchiveContents {
    return { documents: this.#documents, layers: this.#layers, links: this.#links };
  }

  /** Closes what an archive that ended early left open. */
  close(): void {
    this.#open?.close();
  }
}

/** Unpacks one layer; its failures wait for somebody who wants the layer. */
class LayerSink {
  readonly #tarHash = sha256();
  readonly #extractor: LayerExtractor;
  readonly #decompressor: Decompressor;
  #bytes = 0;
  #isFirst = true;
  #failure: Outcome | undefined;
  #isCompressed = false;
  readonly #compressedHash = createHash('sha256');
  readonly #blob: BlobCopy | undefined;

  constructor(
    private readonly path: string,
    private readonly totalBytes: number,
    private readonly link: Link,
    private readonly place: ArchivePlace,
    maxTarBytes: number,
  ) {
    const { diffDir, tarSplitPath, idMaps, blobPath } = place;
    if (blobPath !== undefined) this.#blob = new BlobCopy(blobPath);
    this.#extractor = new LayerExtractor({ diffDir, tarSplitPath, limitBytes: maxTarBytes, idMaps });
    this.#decompressor = createDecompressor((chunk) => this.#extractor.write(chunk), { hash: this.#tarHash });
  }

  async data(chunk: Buffer): Promise<void> {
    if (this.#isFirst) this.#isCompressed = isCompressed(chunk);
    this.#isFirst = false;
    this.#bytes += chunk.length;
    // A plain layer is the tar itself: hashed once.
    if (this.#isCompressed) this.#compressedHash.update(chunk);
    this.link.progress(this.path, this.#bytes, this.totalBytes);
    if (this.#failure) return;
    this.#blob?.write(chunk);
    try {
      await this.#decompressor.write(chunk);
    } catch (error) {
      this.#fail(error);
    }
  }

  async end(): Promise<ArchivedLayer> {
    const { path, place } = this;
    let result = this.#failure;
    let blobDigest: Digest | undefined = this.#isCompressed ? digestOf(this.#compressedHash) : undefined;
    try {
      if (!result) {
        await this.#decompressor.end();
        const diffId: Digest = `sha256:${this.#tarHash.digest()}`;
        blobDigest ??= diffId;
        const { sizeBytes, implicitDirs, danglingLinks, whiteouts } = this.#extractor.finish();
        const value: LayerContent = { diffId, sizeBytes, implicitDirs, danglingLinks, whiteouts };
        result = { ok: true, value };
      }
    } catch (error) {
      result = this.#fail(error);
    }
    this.#blob?.close();
    trimHeaps();
    return { path, place: place.index, blobDigest: blobDigest ?? 'sha256:', blobBytes: this.#bytes, result };
  }

  close(): void {
    this.#blob?.close();
    this.#decompressor.destroy();
    this.#extractor.abort();
  }

  #fail(error: unknown): Outcome {
    this.close();
    return (this.#failure ??= failure(error));
  }
}

/** A file that gets what it is given; when it cannot be written, it goes, because an image works without it. */
class BlobCopy {
  #fd: number | undefined;

  constructor(private readonly path: string) {
    try {
      this.#fd = openSync(path, 'wx', 0o600);
    } catch {
      // There is no file then.
    }
  }

  write(chunk: Buffer): void {
    if (this.#fd === undefined) return;
    try {
      for (let at = 0; at < chunk.length;) at += writeSync(this.#fd, chunk, at);
    } catch {
      this.close();
      rmSync(this.path, { force: true });
    }
  }

  close(): void {
    if (this.#fd !== undefined) closeSync(this.#fd);
    this.#fd = undefined;
  }
}

function digestOf(hash: Hash): Digest {
  return `sha256:${hash.digest('hex')}`;
}

/** True for a tar or something compressed; configurations and manifests are JSON. */
function looksLikeLayer(head: Buffer): boolean {
  if (isCompressed(head)) return true;
  if (head.length < BLOCK_SIZE) return false;
  if (isZeroBlock(head, 0)) return true;
  try {
    readHeader(head, 0, emptyHeader());
    return true;
  } catch {
    return false; // no tar header
  }
}

/**
 * Returns where a symbolic link points to in the archive. @throws EngineError invalid for one that points out of it.
 */
function symlinkTarget(path: string, target: string): string {
  if (target.startsWith('/'))
    throw invalid(
      `link ${JSON.stringify(toText(path))} points out of the archive, to ${JSON.stringify(toText(target))}`,
      { code: 'TAR_BREAKOUT' },
    );
  return cleanName(`${path.slice(0, path.lastIndexOf('/') + 1)}${target}`);
}
