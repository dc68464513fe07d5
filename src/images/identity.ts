/** The IDs of images: each engine has one kind, by where it keeps images. */
import { createHash } from 'node:crypto';
import type { PublishedImage } from '../ports/published-image.js';
import type { Digest } from '../ports/storage.js';
import type { ImageMetadata } from './content.js';

/** `config`: digests of configurations. `manifest`: digests of manifests and indexes, for images that came with one. */
export type ImageIdentity = 'config' | 'manifest';

/** Returns the ID of an image by what it came with. Images of one index have its digest, all of them. */
export function identify(identity: ImageIdentity, configDigest: Digest, published: PublishedImage | undefined): Digest {
  return identity === 'config' || published === undefined ? configDigest : published.target.digest;
}

/** Returns the name of the record of an image when that of its ID is taken. */
export function furtherKey(id: Digest, configDigest: Digest): Digest {
  return `sha256:${createHash('sha256').update(`${id} ${configDigest}`).digest('hex')}`;
}

/**
 * Returns the ID of an image by its record. A record that is named by a manifest of an index is of a time when only one
 * image had the ID of the index: such an image keeps its ID.
 */
export function idOfRecord(key: Digest, { config, published }: Pick<ImageMetadata, 'config' | 'published'>): Digest {
  return config === undefined || published === undefined || key === published.own ? key : published.target.digest;
}
