/** The documents of an image that is made here: a manifest for each platform, what is attested, an index. */
import type { OciDescriptor } from './published-image.js';
import type { Digest } from './storage.js';

export interface ImageDocument {
  readonly descriptor: OciDescriptor;
  readonly bytes: Buffer;
}

/** A layer in the form in which a manifest names it. */
export interface LeavingLayer {
  /** Describes the blob. */
  readonly descriptor: OciDescriptor;
  /** That of the tar in it. */
  readonly diffId: Digest;
}

/** The image of one platform, with what is attested of it. */
export interface PlatformDocuments {
  readonly manifest: ImageDocument;
  readonly config: ImageDocument;
  readonly layers: readonly OciDescriptor[];
  /** The manifest of the attestations, its configuration, and the statements. */
  readonly attestation?: { readonly manifest: ImageDocument; readonly blobs: readonly ImageDocument[] };
}

export interface ImageIndex extends ImageDocument {
  /** Its entries: the images of all platforms, and then what is attested of them. */
  readonly manifests: readonly OciDescriptor[];
}

export interface ImageSet {
  readonly platforms: readonly PlatformDocuments[];
  /** Absent where the image is that of one platform alone. */
  readonly index?: ImageIndex;
  /** Describes the index, or the only manifest. */
  readonly descriptor: OciDescriptor;
}
