/** An image as registries and archives have it: the manifest, and the index that has this manifest beside others. */
import type { Digest } from './storage.js';

/** A descriptor as its JSON is spelled (OCI image specification, descriptor.md). */
export interface OciDescriptor {
  readonly mediaType: string;
  readonly digest: Digest;
  readonly size: number;
  readonly platform?: OciPlatform;
  readonly annotations?: Readonly<Record<string, string>>;
}

export interface OciPlatform {
  readonly architecture: string;
  readonly os: string;
  readonly 'os.version'?: string;
  readonly 'os.features'?: readonly string[];
  readonly variant?: string;
}

export interface PublishedImage {
  /** The document that the reference, or the entry of the archive, named: an index, or the manifest itself. */
  readonly target: OciDescriptor;
  /** The entries of the index, or the manifest itself. */
  readonly manifests: readonly OciDescriptor[];
  /** Digest of the image's own manifest among them. */
  readonly own: Digest;
  /**
   * Bytes of this manifest, its configuration and its compressed layers that were kept with the image; absent where
   * nothing of it was.
   */
  readonly contentBytes?: number;
  /** The manifest of what is attested of this image, where it is kept with all that it names, and their bytes. */
  readonly attested?: { readonly digest: Digest; readonly contentBytes: number };
}
