/**
 * Task: one layer from the registry into its directory, in a single pass. The blob streams through sha256,
 * decompression, a second sha256 and extraction. A broken download goes on with a range request, because the states of
 * both hashes, of the inflater and of the extractor are still here. For a task that ends before the blob does, the
 * blob's bytes are also kept on disk: the next one reads them from there first.
 */
import { createHash, type Hash } from 'node:crypto';
import type { MessagePort } from 'node:worker_threads';
import { cancelled, dataLoss, type EngineError } from '../errors/engine-error.js';
import type { IdMaps } from '../ports/id-maps.js';
import type { Digest } from '../ports/storage.js';
import { isFaultOfContent, type PartialPlace } from '../registry/partial-blobs.js';
import { type ExtractResult, LayerExtractor } from '../storage/tar/layer-extractor.js';
import { createDecompressor, type Decompressor } from './decompress.js';
import { BlobDownload, type BlobInput } from './download-blob.js';
import { PartialFile } from './partial-file.js';
import { TaskLink } from './task-link.js';
import { bufferDied } from './buffer-collector.js';

export interface FetchLayerInput extends BlobInput {
  /** Digest of the plain tar, as the image configuration declares it. */
  readonly diffId: Digest;
  /** A layer whose plain tar is longer is refused, so that a small blob cannot fill the disk. */
  readonly maxTarBytes: number;
  readonly diffDir: string;
  readonly tarSplitPath: string;
  readonly idMaps?: IdMaps | undefined;
  /** Where the blob is kept until the layer is complete; undefined: nowhere. */
  readonly partial: PartialPlace | undefined;
  readonly port: MessagePort;
}

export type FetchLayerOutput = ExtractResult;

/** Messages from the task to the main thread, besides what every transfer reports. */
export type FetchLayerReport =
  | { readonly type: 'verifying' }
  /** Bytes of the blob. */
  | { readonly type: 'downloading'; readonly bytes: number }
  /** Begins when the whole blob has the right digest. */
  | { readonly type: 'extracting'; readonly bytes: number };

type Link = TaskLink<FetchLayerReport>;

/**
 * Fetches and extracts. Throws `data-loss` for a wrong digest, size or stream, `cancelled` on order, the registry's
 * errors when its attempts are spent, and the extractor's errors. The caller deletes what was extracted so far.
 */
export async function fetchLayer(input: FetchLayerInput): Promise<FetchLayerOutput> {
  const link: Link = new TaskLink(input.port);
  const sink = new LayerSink(input);
  // The layer can do without.
  const partial = input.partial && (await PartialFile.open(input.partial, input).catch(() => undefined));
  try {
    for (const chunk of partial?.replay() ?? []) {
      link.signal.throwIfAborted();
      await sink.write(chunk);
      link.progress({ type: 'downloading', bytes: sink.blobBytes });
    }
    const take = (chunk: Buffer): void | Promise<void> => {
      partial?.append(chunk);
      const taken = sink.write(chunk);
      link.progress({ type: 'downloading', bytes: sink.blobBytes });
      return taken;
    };
    await new BlobDownload(input, link, { take, position: () => sink.blobBytes }, partial).run();
    link.report({ type: 'downloading', bytes: sink.blobBytes });
    link.report({ type: 'verifying' });
    sink.verify();
    link.report({ type: 'extracting', bytes: sink.blobBytes });
    return await sink.finish();
  } catch (error) {
    sink.destroy();
    if (link.signal.aborted) throw cancelled('the layer is not wanted any more');
    // The bytes that were left on disk may be the reason.
    if ((partial?.resumedBytes ?? 0) > 0 && isFaultOfContent(error))
      throw dataLoss(error.message, { code: 'PARTIAL_DAMAGED', cause: error });
    throw error;
  } finally {
    partial?.close();
    link.close();
  }
}

/** Everything behind the network: both hashes, the inflater and the extractor, and the limits on them. */
class LayerSink {
  readonly #input: FetchLayerInput;
  readonly #blobHash: Hash = createHash('sha256');
  readonly #tarHash: Hash = createHash('sha256');
  readonly #extractor: LayerExtractor;
  readonly #decompressor: Decompressor;
  #blobBytes = 0;
  /**
   * Why extraction stopped. The download goes on, for only its digest tells whether the image or the registry is at
   * fault.
   */
  #failure: EngineError | undefined;

  constructor(input: FetchLayerInput) {
    this.#input = input;
    this.#extractor = new LayerExtractor({
      diffDir: input.diffDir,
      tarSplitPath: input.tarSplitPath,
      limitBytes: input.maxTarBytes,
      idMaps: input.idMaps,
    });
    this.#decompressor = createDecompressor((chunk) => this.#extract(chunk), { hasDigest: true });
  }

  /** Returns the compressed bytes taken so far. */
  get blobBytes(): number {
    return this.#blobBytes;
  }

  write(chunk: Buffer): void | Promise<void> {
    this.#blobBytes += chunk.length;
    if (this.#blobBytes > this.#input.sizeBytes)
      throw damaged(
        `the layer is longer than the ${this.#input.sizeBytes} bytes that its manifest declares`,
        this.#input,
      );
    this.#blobHash.update(chunk);
    bufferDied(chunk.length);
    if (this.#failure) return;
    try {
      return this.#decompressor.write(chunk)?.catch((error: unknown) => this.#note(error));
    } catch (error) {
      this.#note(error);
    }
  }

  #note(error: unknown): void {
    if (!isFaultOfContent(error)) throw error;
    this.#failure = error;
  }

  /** Judges the blob once it is complete. */
  verify(): void {
    const { digest } = this.#input;
    if (this.#blobHash.digest('hex') !== digest.slice(7))
      throw damaged(`filesystem layer verification failed for digest ${digest}`, this.#input);
  }

  /** Extracts what is still in the inflater and judges the tar. */
  async finish(): Promise<FetchLayerOutput> {
    const { digest, diffId } = this.#input;
    if (this.#failure) throw this.#failure;
    await this.#decompressor.end();
    if (this.#tarHash.digest('hex') !== diffId.slice(7))
      throw damaged(`layer ${digest} does not have the diff ID ${diffId} of its image configuration`, this.#input);
    return this.#extractor.finish();
  }

  destroy(): void {
    this.#decompressor.destroy();
    this.#extractor.abort();
  }

  #extract(chunk: Buffer): void {
    this.#tarHash.update(chunk);
    this.#extractor.write(chunk);
  }
}

function damaged(message: string, { digest }: FetchLayerInput): EngineError {
  return dataLoss(message, { code: 'DIGEST_MISMATCH', details: { digest } });
}
