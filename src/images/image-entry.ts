/** An image as the store holds it in memory, and the value that is published of it. */
import type { Image, ImageConfigDocument } from '../ports/images.js';
import type { Digest } from '../ports/storage.js';
import type { ImageMetadata } from './content.js';
import { familiarString, parseReference } from './reference.js';

/** This is held in memory for each image, besides its names. */
export interface ImageEntry {
  readonly id: Digest;
  readonly config: ImageConfigDocument;
  readonly topLayer: Digest | undefined;
  readonly sizeBytes: number;
  readonly configSizeBytes: number;
  metadata: ImageMetadata;
  lastUsedMs: number;
  /** The metadata are being written. A removal waits for that, so that the record is not written after it. */
  saving?: Promise<void>;
  /** The published value; made anew when names or metadata change. */
  image: Image | undefined;
}

/** @param canonicalNames in the order in which clients see them. */
export function imageOf(entry: ImageEntry, canonicalNames: readonly string[]): Image {
  const { id, config, topLayer, sizeBytes, configSizeBytes, metadata } = entry;
  const names = canonicalNames.map(parseReference);
  return Object.freeze({
    id,
    config,
    topLayer,
    sizeBytes,
    configSizeBytes,
    repoTags: names.filter((name) => name.digest === undefined).map(familiarString),
    repoDigests: names.filter((name) => name.digest !== undefined).map(familiarString),
    parent: metadata.parent,
    lastTagTime: metadata.lastTagTime,
    published: metadata.published,
  });
}

/** When something was last done with an image, as far as the disk says. Milliseconds since the epoch. */
export function lastUseOf({ lastTagTime, lastUsed }: ImageMetadata): number {
  return Math.max(Date.parse(lastTagTime ?? '') || 0, Date.parse(lastUsed ?? '') || 0);
}
