/** The content that a push sends for a layer: the blob that was pulled, or one that is made from the layer's files. */
import { createHash } from 'node:crypto';
import { readSync } from 'node:fs';
import { dataLoss } from '../errors/engine-error.js';
import type { Digest } from '../ports/storage.js';
import { type AssembleInput, assembleTar, sharedChunk } from '../storage/tar/assemble.js';
import { bufferDied } from './buffer-collector.js';
import { deflaterFor } from './deflate-part.js';
import { gzipInParts } from './gzip-parts.js';

/** The files of a layer, of which a blob is made. */
export interface LayerContent extends AssembleInput {
  readonly kind: 'layer';
  readonly diffId: Digest;
}

/** A blob that is sent as it is. */
export interface StoredContent {
  readonly kind: 'blob';
  /** Open for reading for as long as the task runs. */
  readonly fd: number;
  readonly digest: Digest;
}

/** Plain data. */
export type PushedContent = LayerContent | StoredContent;

export type Bytes = AsyncGenerator<Buffer, void, void>;

/** A blob while it is read. Its digest and its size are known at the end. */
export interface SentBlob {
  readonly isComplete: boolean;
  /** @throws Error before the end. */
  readonly digest: Digest;
  readonly sizeBytes: number;
  /** @throws EngineError data-loss when what is on the disk has another digest: BLOB_DAMAGED, LAYER_DAMAGED. */
  bytes(): Bytes;
}

/** `onBytes` hears how many bytes of the content were read. */
export function openContent(content: PushedContent, onBytes: (bytes: number) => void): SentBlob {
  return content.kind === 'blob' ? new StoredBlob(content, onBytes) : new CompressedLayer(content, onBytes);
}

const READ_BYTES = 256 << 10;

abstract class HashedBlob {
  readonly #hash = createHash('sha256');
  #digest: Digest | undefined;
  sizeBytes = 0;

  get isComplete(): boolean {
    return this.#digest !== undefined;
  }

  get digest(): Digest {
    if (this.#digest === undefined) throw new Error('the blob is not complete');
    return this.#digest;
  }

  protected count(chunk: Buffer): void {
    this.#hash.update(chunk);
    this.sizeBytes += chunk.length;
  }

  protected complete(): Digest {
    return (this.#digest = `sha256:${this.#hash.digest('hex')}`);
  }
}

class StoredBlob extends HashedBlob implements SentBlob {
  constructor(
    private readonly content: StoredContent,
    private readonly onBytes: (bytes: number) => void,
  ) {
    super();
  }

  async *bytes(): Bytes {
    const { fd, digest } = this.content;
    for (;;) {
      // The sender may still hold a chunk when the next one is read.
      const chunk = Buffer.allocUnsafeSlow(READ_BYTES);
      const length = readSync(fd, chunk, 0, READ_BYTES, this.sizeBytes);
      if (length === 0) break;
      this.count(chunk.subarray(0, length));
      yield chunk.subarray(0, length);
      bufferDied(READ_BYTES);
      this.onBytes(this.sizeBytes);
    }
    if (this.complete() !== digest) throw dataLoss(`the blob ${digest} was changed on disk`, { code: 'BLOB_DAMAGED' });
  }
}

class CompressedLayer extends HashedBlob implements SentBlob {
  constructor(
    private readonly content: LayerContent,
    private readonly onBytes: (bytes: number) => void,
  ) {
    super();
  }

  async *bytes(): Bytes {
    for await (const chunk of gzipInParts(this.#tar(), deflaterFor(undefined))) {
      this.count(chunk);
      yield chunk;
    }
    this.complete();
  }

  *#tar(): Generator<Buffer> {
    const { diffId } = this.content;
    const hash = createHash('sha256');
    let tarBytes = 0;
    for (const chunk of assembleTar(this.content, sharedChunk())) {
      hash.update(chunk);
      tarBytes += chunk.length;
      yield chunk;
      this.onBytes(tarBytes);
    }
    if (`sha256:${hash.digest('hex')}` !== diffId)
      throw dataLoss(`layer ${diffId} was changed on disk`, { code: 'LAYER_DAMAGED' });
  }
}
