/** The way of a blob's bytes into the directory of a layer: the inflater, the hash of the tar, and the extractor. */
import type { EngineError } from '../errors/engine-error.js';
import type { IdMaps } from '../ports/id-maps.js';
import type { Digest } from '../ports/storage.js';
import { isFaultOfContent } from '../registry/partial-blobs.js';
import { type ExtractResult, LayerExtractor } from '../storage/tar/layer-extractor.js';
import { sha256 } from '../sys/ffi/sha256.js';
import { damaged } from './blob-check.js';
import { createDecompressor, type Decompressor, type DecompressorOptions } from './decompress.js';

/** Where a layer is unpacked. */
export interface LayerPlace {
  readonly diffDir: string;
  readonly tarSplitPath: string;
  readonly idMaps?: IdMaps | undefined;
  /** A layer whose plain tar is longer is refused, so that a small blob cannot fill the disk. */
  readonly maxTarBytes: number;
}

export interface LayerNames {
  readonly digest: Digest;
  /** Digest of the plain tar, as the image configuration declares it. */
  readonly diffId: Digest;
}

export class LayerUnpacking {
  readonly #names: LayerNames;
  readonly #tarHash = sha256();
  readonly #extractor: LayerExtractor;
  readonly #decompressor: Decompressor;
  /**
   * Why extraction stopped. The download goes on, for only its digest tells whether the image or the registry is at
   * fault.
   */
  #failure: EngineError | undefined;

  constructor(
    names: LayerNames,
    { diffDir, tarSplitPath, idMaps, maxTarBytes }: LayerPlace,
    { isGathered = false }: Pick<DecompressorOptions, 'isGathered'> = {},
  ) {
    this.#names = names;
    this.#extractor = new LayerExtractor({ diffDir, tarSplitPath, limitBytes: maxTarBytes, idMaps });
    this.#decompressor = createDecompressor((chunk) => this.#extractor.write(chunk), {
      hasDigest: true,
      hash: this.#tarHash,
      isGathered,
    });
  }

  /** Takes the next bytes of the blob, which may be reused when it returns or its promise resolves. */
  write(chunk: Buffer): void | Promise<void> {
    if (this.#failure) return;
    try {
      return this.#decompressor.write(chunk)?.catch((error: unknown) => this.#note(error));
    } catch (error) {
      this.#note(error);
    }
  }

  /** Extracts what is still in the inflater and judges the tar. */
  async finish(): Promise<ExtractResult> {
    const { digest, diffId } = this.#names;
    if (this.#failure) throw this.#failure;
    await this.#decompressor.end();
    if (this.#tarHash.digest() !== diffId.slice(7))
      throw damaged(`layer ${digest} does not have the diff ID ${diffId} of its image configuration`, this.#names);
    return this.#extractor.finish();
  }

  /** Nothing more is extracted. Idempotent. */
  destroy(): void {
    this.#decompressor.destroy();
    this.#extractor.abort();
  }

  #note(error: unknown): void {
    if (!isFaultOfContent(error)) throw error;
    this.#failure = error;
  }
}
