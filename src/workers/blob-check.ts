/** The length and the digest of a blob, checked while its bytes arrive. */
import { createHash, type Hash } from 'node:crypto';
import { dataLoss, type EngineError } from '../errors/engine-error.js';
import type { Digest } from '../ports/storage.js';

export interface CheckedBlob {
  /** This is the digest of the blob, as the manifest declares it. */
  readonly digest: Digest;
  readonly sizeBytes: number;
}

export class BlobCheck {
  readonly #blob: CheckedBlob;
  readonly #hash: Hash = createHash('sha256');
  #bytes = 0;

  constructor(blob: CheckedBlob) {
    this.#blob = blob;
  }

  /** Returns the bytes taken so far. */
  get bytes(): number {
    return this.#bytes;
  }

  /** @throws EngineError data-loss for a blob that is too long. */
  add(chunk: Buffer): void {
    this.#bytes += chunk.length;
    if (this.#bytes > this.#blob.sizeBytes)
      throw damaged(
        `the layer is longer than the ${this.#blob.sizeBytes} bytes that its manifest declares`,
        this.#blob,
      );
    this.#hash.update(chunk);
  }

  /** Judges the blob once it is complete. @throws EngineError data-loss. */
  verify(): void {
    const { digest } = this.#blob;
    if (this.#hash.digest('hex') !== digest.slice(7))
      throw damaged(`filesystem layer verification failed for digest ${digest}`, this.#blob);
  }
}

/** Makes the error for bytes that are not what a manifest or an image configuration says. */
export function damaged(message: string, { digest }: Pick<CheckedBlob, 'digest'>): EngineError {
  return dataLoss(message, { code: 'DIGEST_MISMATCH', details: { digest } });
}
