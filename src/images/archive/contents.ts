/** The findings of a worker in an archive of images. */
import type { Digest } from '../../ports/storage.js';
import type { Outcome } from '../../workers/outcome.js';

/** A file of the archive that was unpacked as a layer. */
export interface ArchivedLayer {
  readonly path: string;
  /** `index` of its place. */
  readonly place: number;
  /** Digest of the file as it is in the archive. */
  readonly blobDigest: Digest;
  readonly blobBytes: number;
  /** A LayerContent, or the failure of unpacking, which matters only when a manifest names the layer. */
  readonly result: Outcome;
}

export interface ArchiveContents {
  readonly documents: ReadonlyMap<string, Buffer>;
  readonly layers: readonly ArchivedLayer[];
  /** Symbolic and hard links; the target as a path in the archive. */
  readonly links: ReadonlyMap<string, string>;
}
