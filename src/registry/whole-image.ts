/** Images as they are given to be kept as registries have them, and what of them is kept. */
import type { ImageDocument } from '../ports/image-set.js';
import type { PublishedImage } from '../ports/published-image.js';
import type { Digest } from '../ports/storage.js';
import type { ResolvedImage } from './resolve.js';

export interface KeptDocument {
  readonly digest: Digest;
  readonly bytes: Buffer;
}

/** An image with the documents that it came with. */
export interface WholeImage extends Pick<ResolvedImage, 'configDigest' | 'configBytes' | 'documents' | 'published'> {
  readonly layers: readonly { readonly blob: { readonly digest: Digest } }[];
  /** The manifest of what is attested of it, and all that this names, the configuration first. */
  readonly attestation?: { readonly manifest: KeptDocument; readonly blobs: readonly KeptDocument[] } | undefined;
}

/** The bytes that are kept of an image. */
export type KeptFacts = Pick<PublishedImage, 'contentBytes' | 'attested'>;

export function written({ descriptor: { digest }, bytes }: ImageDocument): KeptDocument {
  return { digest, bytes };
}
