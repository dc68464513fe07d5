/** The IDs of images: each engine has one kind, by where it keeps images. */
import type { PublishedImage } from '../ports/published-image.js';
import type { Digest } from '../ports/storage.js';

/** `config`: digests of configurations. `manifest`: digests of manifests and indexes, for images that came with one. */
export type ImageIdentity = 'config' | 'manifest';

/**
 * Returns the ID of an image by what it came with. An index is the ID of one of its images only, the first that came;
 * the others have those of their own manifests.
 * @param configOf returns the configuration of the image that has an ID now.
 */
export function idByManifest(
  configDigest: Digest,
  { target, own }: PublishedImage,
  configOf: (id: Digest) => Digest | undefined,
): Digest {
  return (configOf(target.digest) ?? configDigest) === configDigest ? target.digest : own;
}
