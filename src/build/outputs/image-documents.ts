/** The documents of an image that leaves this engine: manifests, an index, and what points to them. */
import { createHash } from 'node:crypto';
import type { ImageDocument } from '../../ports/image-set.js';
import type { OciDescriptor } from '../../ports/published-image.js';
import type { Digest } from '../../ports/storage.js';

export type Descriptor = OciDescriptor;
export type DescribedPlatform = NonNullable<Descriptor['platform']>;

type Annotations = Readonly<Record<string, string>>;

const OCI = 'application/vnd.oci.image';
const DOCKER = 'application/vnd.docker';

export const MEDIA_TYPES = {
  oci: {
    manifest: `${OCI}.manifest.v1+json`,
    index: `${OCI}.index.v1+json`,
    config: `${OCI}.config.v1+json`,
    layer: {
      gzip: `${OCI}.layer.v1.tar+gzip`,
      zstd: `${OCI}.layer.v1.tar+zstd`,
      uncompressed: `${OCI}.layer.v1.tar`,
    },
  },
  docker: {
    manifest: `${DOCKER}.distribution.manifest.v2+json`,
    index: `${DOCKER}.distribution.manifest.list.v2+json`,
    config: `${DOCKER}.container.image.v1+json`,
    layer: {
      gzip: `${DOCKER}.image.rootfs.diff.tar.gzip`,
      zstd: `${DOCKER}.image.rootfs.diff.tar.zstd`,
      uncompressed: `${DOCKER}.image.rootfs.diff.tar`,
    },
  },
} as const;

export type ImageFormat = keyof typeof MEDIA_TYPES;

export function manifestDocument(
  format: ImageFormat,
  config: Descriptor,
  layers: readonly Descriptor[],
  annotations: Annotations = {},
): ImageDocument {
  const mediaType = MEDIA_TYPES[format].manifest;
  return documentOf(mediaType, { schemaVersion: 2, mediaType, config, layers, ...withAnnotations(annotations) });
}

export function indexDocument(
  format: ImageFormat,
  manifests: readonly Descriptor[],
  annotations: Annotations = {},
): ImageDocument {
  const mediaType = MEDIA_TYPES[format].index;
  return documentOf(mediaType, { schemaVersion: 2, mediaType, manifests, ...withAnnotations(annotations) });
}

/** Adds annotations, sorted by their names, and the platform to a descriptor. */
export function described(
  { mediaType, digest, size }: Descriptor,
  annotations: Annotations,
  platform?: DescribedPlatform,
): Descriptor {
  return { mediaType, digest, size, ...withAnnotations(annotations), ...(platform && { platform }) };
}

export function platformOf({
  architecture,
  os,
  variant = '',
}: {
  readonly architecture: string;
  readonly os: string;
  readonly variant?: string;
}): DescribedPlatform {
  return { architecture, os, ...(variant !== '' && { variant }) };
}

export function digestOf(bytes: Buffer): Digest {
  return `sha256:${createHash('sha256').update(bytes).digest('hex')}`;
}

function documentOf(mediaType: string, content: object): ImageDocument {
  const bytes = Buffer.from(JSON.stringify(content, undefined, 2));
  return { descriptor: { mediaType, digest: digestOf(bytes), size: bytes.length }, bytes };
}

function withAnnotations(annotations: Annotations): { readonly annotations?: Annotations } {
  const entries = Object.entries(annotations).sort(([a], [b]) => (a < b ? -1 : 1));
  return entries.length === 0 ? {} : { annotations: Object.fromEntries(entries) };
}
