/** The length and the digest of a blob, checked while its bytes arrive and go on to somebody else. */
import { dataLoss, type EngineError } from '../errors/engine-error.js';
import type { Digest } from '../ports/storage.js';
import { sha256 } from '../sys/ffi/sha256.js';
import { Gathered } from './gathered.js';

export interface CheckedBlob {
  /** This is the digest of the blob, as the manifest declares it. */
  readonly digest: Digest;
  readonly sizeBytes: number;
}

export class BlobCheck {
  readonly #blob: CheckedBlob;
  readonly #hash = sha256();
  readonly #pieces: Gathered;
  #bytes = 0;

  /** @param taker gets all bytes in large pieces, which it has until its promise resolves. */
  constructor(blob: CheckedBlob, taker?: (piece: Buffer) => void | Promise<void>) {
    this.#blob = blob;
    this.#pieces = new Gathered(async (piece) => {
      const hashing = this.#hash.addAside(piece);
      try {
        await taker?.(piece);
      } finally {
        await hashing;
      }
    });
  }

  /** Returns the bytes taken so far. */
  get bytes(): number {
    return this.#bytes;
  }

  /**
   * Takes a chunk. Returns a promise only when it has to wait until more bytes are welcome; then the chunk may be
   * reused.
   * @throws EngineError data-loss for a blob that is too long; what the taker has thrown.
   */
  add(chunk: Buffer): void | Promise<void> {
    this.#bytes += chunk.length;
    if (this.#bytes > this.#blob.sizeBytes)
      throw damaged(
        `the layer is longer than the ${this.#blob.sizeBytes} bytes that its manifest declares`,
        this.#blob,
      );
    return this.#pieces.write(chunk);
  }

  /** Judges the blob once it is complete, and all of it is taken. @throws EngineError data-loss; as `add`. */
  async verify(): Promise<void> {
    const { digest } = this.#blob;
    await this.#pieces.end();
    if (this.#hash.digest() !== digest.slice(7))
      throw damaged(`filesystem layer verification failed for digest ${digest}`, this.#blob);
  }
}

/** Makes the error for bytes that are not what a manifest or an image configuration says. */
export function damaged(message: string, { digest }: Pick<CheckedBlob, 'digest'>): EngineError {
  return dataLoss(message, { code: 'DIGEST_MISMATCH', details: { digest } });
}
