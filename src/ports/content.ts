/**
 * Contract of the content of the supervisor: blobs that are named by their digests. The supervisor deletes, in its
 * time, what no lease holds and no label of another blob refers to.
 */
import type { Digest } from './storage.js';

export interface NewBlob {
  readonly digest: Digest;
  readonly sizeBytes: number;
  /** By some of them a blob refers to others, and so keeps them: `containerd.io/gc.ref.content…`. */
  readonly labels?: Readonly<Record<string, string>>;
}

export interface Content {
  /** Returns the size of a blob; undefined when it is not there. */
  sizeOf(digest: Digest): Promise<number | undefined>;
  /** Returns the labels of a blob; none when it is not there. */
  labelsOf(digest: Digest): Promise<Readonly<Record<string, string>>>;
  /** Returns the bytes, in pieces. @throws EngineError not-found. */
  read(digest: Digest): AsyncIterable<Buffer>;
  /**
   * Writes a blob and lets the lease hold it. One that is there already gets the labels. `bytesFrom` is asked for the
   * bytes from an offset on, because what an attempt that broke off has brought is not sent again.
   * @throws EngineError data-loss when the bytes have another digest or size: nothing of them is left then.
   */
  write(lease: string, blob: NewBlob, bytesFrom: (offset: number) => AsyncIterable<Buffer>): Promise<void>;
  /**
   * Offers a file with the bytes of a blob, so that the `write` of it that follows need not send them. The caller has
   * seen that they have the digest, and nobody changes the file any more: where it is taken, it is the blob. It may be
   * refused in silence.
   */
  offer(digest: Digest, path: string): Promise<void>;
  /** Takes labels from a blob. Idempotent; a blob that is not there has none. */
  unlabel(digest: Digest, names: readonly string[]): Promise<void>;
  /** Returns the blobs that a lease holds; none when there is no such lease. */
  held(lease: string): Promise<readonly Digest[]>;
  /** Ends that a lease holds these blobs. Idempotent. */
  letGo(lease: string, digests: readonly Digest[]): Promise<void>;
  /**
   * Ends that a lease holds what writes have left that broke off, and with it every blob which they were to become.
   * Does nothing while anything is written. Resolves with whether there was any.
   */
  letGoUnfinished(lease: string): Promise<boolean>;
  /** Deletes all that nothing holds, and resolves when it is gone. */
  collect(): Promise<void>;
}
