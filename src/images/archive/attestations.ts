/** Attestations of images in an archive, which lie beside these in their index. */
import { isEngineError } from '../../errors/engine-error.js';
import type { PublishedImage } from '../../ports/published-image.js';
import type { Digest } from '../../ports/storage.js';
import { parseManifest, STATEMENT_TYPE } from '../../registry/manifest.js';
import { type ArchivedDocument, blobPath } from './documents.js';
import type { ArchiveFiles } from './files.js';

/** The manifest of what is attested of an image, and all that this names, the configuration first. */
export interface ArchivedAttestation {
  readonly manifest: ArchivedDocument;
  readonly blobs: readonly ArchivedDocument[];
}

/** Reads attestations, each only once, even if several images name it. */
export class Attestations {
  readonly #found = new Map<Digest, ArchivedAttestation | undefined>();

  constructor(private readonly files: ArchiveFiles) {}

  /**
   * Returns what is attested of an image; undefined when that is nothing, or not in the archive as a whole.
   * @throws EngineError invalid when the archive costs too much.
   */
  of({ manifests, own }: PublishedImage): ArchivedAttestation | undefined {
    const entry = manifests.find(
      ({ annotations }) =>
        annotations?.['vnd.docker.reference.type'] === 'attestation-manifest' &&
        annotations['vnd.docker.reference.digest'] === own,
    );
    if (entry === undefined) return undefined;
    if (!this.#found.has(entry.digest)) this.#found.set(entry.digest, this.#read(entry.digest));
    return this.#found.get(entry.digest);
  }

  #read(digest: Digest): ArchivedAttestation | undefined {
    try {
      const manifest = this.#document(digest);
      const parsed = manifest && parseManifest(manifest.bytes, undefined, digest, undefined, STATEMENT_TYPE);
      if (parsed?.kind !== 'image') return undefined;
      const blobs = [parsed.config, ...parsed.layers].map((blob) => this.#document(blob.digest));
      const whole = blobs.filter((blob) => blob !== undefined);
      return manifest && whole.length === blobs.length ? { manifest, blobs: whole } : undefined;
    } catch (error) {
      if (isEngineError(error) && error.code !== 'ARCHIVE_TOO_LARGE') return undefined;
      throw error;
    }
  }

  #document(digest: Digest): (ArchivedDocument & { readonly bytes: Buffer }) | undefined {
    const bytes = this.files.document(blobPath(digest));
    return bytes && { digest, bytes };
  }
}
