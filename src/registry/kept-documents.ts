/** Reads manifests and indexes in the content store of the supervisor, and tells what of them is kept. */
import { buffer } from 'node:stream/consumers';
import { isEngineError } from '../errors/engine-error.js';
import type { Content } from '../ports/content.js';
import type { PublishedImage } from '../ports/published-image.js';
import type { Digest } from '../ports/storage.js';
import { type Descriptor, type ImageManifest, parseManifest, STATEMENT_TYPE } from './manifest.js';
import type { PushedBlob, WrittenManifest } from './manifest-writer.js';

/** A manifest as it was pulled or made. All that it names is kept. */
export interface KeptManifest extends WrittenManifest {
  readonly config: PushedBlob;
  /** The lowest one first; those of what is attested of an image are statements. */
  readonly layers: readonly PushedBlob[];
}

/** The document that the name of an image stood for. */
export interface KeptTarget {
  /** The index that its name stood for, or the manifest itself. */
  readonly target: WrittenManifest;
  /** The other manifests of the index that are kept, too. */
  readonly others: readonly KeptManifest[];
  /** False while the index names anything that is not kept. */
  readonly isWhole: boolean;
}

/** Nothing larger was pulled as a manifest; another client of the supervisor may have brought anything. */
const MAX_MANIFEST_BYTES = 4 << 20;

export class KeptDocuments {
  constructor(private readonly content: Pick<Content, 'read' | 'sizeOf'>) {}

  /** @param manifest the image's own. Resolves with undefined when the index is not kept. */
  async target({ target, own }: PublishedImage, manifest: KeptManifest): Promise<KeptTarget | undefined> {
    if (target.digest === own) return { target: manifest, others: [], isWhole: true };
    const bytes = await this.#document(target.digest);
    if (bytes === undefined) return undefined;
    const index = parseManifest(bytes, target.mediaType, target.digest);
    if (index.kind !== 'index') return undefined;
    const others: KeptManifest[] = [];
    let isWhole = true;
    for (const entry of index.manifests) {
      if (entry.digest === own) continue;
      const other = await this.manifest(entry.digest, entry.mediaType, isUnknown(entry));
      if (other) others.push(other);
      else isWhole = false;
    }
    return { target: { bytes, digest: target.digest, mediaType: index.mediaType }, others, isWhole };
  }

  /**
   * Resolves with a manifest, if it is kept with all that it names.
   * @param isOfStatements is true for a manifest of what is attested of an image.
   */
  async manifest(digest: Digest, type: string | undefined, isOfStatements = false): Promise<KeptManifest | undefined> {
    const bytes = await this.#document(digest);
    const manifest = bytes && parsed(bytes, type, digest, isOfStatements);
    if (bytes === undefined || manifest === undefined) return undefined;
    const { config, layers, mediaType } = manifest;
    for (const blob of [config, ...layers])
      if ((await this.content.sizeOf(blob.digest)) !== blob.sizeBytes) return undefined;
    return { bytes, digest, mediaType, config, layers };
  }

  /** Returns the bytes of a manifest or index; undefined when it is not there, or larger than any of them. */
  async #document(digest: Digest): Promise<Buffer | undefined> {
    const size = await this.content.sizeOf(digest);
    return size === undefined || size > MAX_MANIFEST_BYTES ? undefined : buffer(this.content.read(digest));
  }
}

/** True for an entry of an index that is no image, as attestations are. */
function isUnknown({ platform }: Descriptor): boolean {
  return platform?.os === 'unknown';
}

/** Returns a manifest; undefined for other documents, and for one whose layers are not of this kind. */
function parsed(
  bytes: Buffer,
  type: string | undefined,
  digest: Digest,
  isOfStatements: boolean,
): ImageManifest | undefined {
  try {
    const manifest = isOfStatements
      ? parseManifest(bytes, type, digest, undefined, STATEMENT_TYPE)
      : parseManifest(bytes, type, digest);
    return manifest.kind === 'image' ? manifest : undefined;
  } catch (error) {
    if (isEngineError(error)) return undefined;
    throw error;
  }
}
