/** An image as the store holds it in memory, and the value that other parts get of it. */
import type { Image, ImageConfigDocument } from '../ports/images.js';
import type { Digest, LayerStore } from '../ports/storage.js';
import { chainOf } from '../ports/chain-id.js';
import type { ImageMetadata } from './content.js';
import { familiarName, familiarString, parseReference } from './reference.js';

/** This is held in memory for each image, besides its names. */
export interface ImageEntry {
  readonly id: Digest;
  /** The name of its record: the ID, or a digest of its own where another image has a record of that name. */
  key: Digest;
  readonly configDigest: Digest;
  readonly config: ImageConfigDocument;
  readonly topLayer: Digest | undefined;
  readonly sizeBytes: number;
  readonly configSizeBytes: number;
  metadata: ImageMetadata;
  lastUsedMs: number;
  /** Set while the metadata are being written. A removal waits for it, so that the record is not written afterwards. */
  saving?: Promise<void>;
}

/** An image of one platform among those that its ID may have. */
export type ImageOfId = Pick<Image, 'id' | 'configDigest'>;

/** An image that is being written. */
export interface Creation extends ImageOfId {
  readonly entry: Promise<ImageEntry>;
}

/** Makes the entry of an image, and takes its reference on the layers. */
export function entryOver(
  layers: Pick<LayerStore, 'retain' | 'chainSize'>,
  {
    id,
    key,
    config,
    configSizeBytes,
    metadata,
  }: Pick<ImageEntry, 'id' | 'key' | 'config' | 'configSizeBytes' | 'metadata'>,
): ImageEntry {
  const topLayer = chainOf(config.rootfs.diff_ids).at(-1);
  if (topLayer !== undefined) layers.retain(topLayer);
  return {
    id,
    key,
    configDigest: metadata.config ?? key,
    config,
    topLayer,
    sizeBytes: topLayer === undefined ? 0 : layers.chainSize(topLayer),
    configSizeBytes,
    metadata,
    lastUsedMs: lastUseOf(metadata),
  };
}

/** Makes the value of an image. @param canonicalNames in the order in which clients see them. */
export function imageOf(entry: ImageEntry, canonicalNames: readonly string[], lastTagTime: string | undefined): Image {
  const { id, configDigest, config, topLayer, sizeBytes, configSizeBytes, metadata } = entry;
  const names = canonicalNames.map(parseReference);
  const tags = names.filter((name) => name.digest === undefined);
  const digests = names.filter((name) => name.digest !== undefined).map(familiarString);
  // An ID that is the digest of a manifest is one that a registry knows it by.
  if (id !== configDigest) digests.push(...tags.map((name) => `${familiarName(name)}@${id}`));
  return Object.freeze({
    id,
    configDigest,
    config,
    topLayer,
    sizeBytes,
    configSizeBytes,
    repoTags: tags.map(familiarString),
    repoDigests: [...new Set(digests)].sort(),
    parent: metadata.parent,
    lastTagTime,
    published: metadata.published,
  });
}

/** Returns the last use of an image, as far as the disk says, in milliseconds since the epoch. */
function lastUseOf({ lastTagTime, lastUsed }: ImageMetadata): number {
  return Math.max(Date.parse(lastTagTime ?? '') || 0, Date.parse(lastUsed ?? '') || 0);
}
