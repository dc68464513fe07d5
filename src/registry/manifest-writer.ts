/** Writes manifests of images that are pushed, as Docker schema 2 or in the OCI format. */
import type { Digest } from '../ports/storage.js';
import { digestOf } from './client.js';

export interface PushedBlob {
  readonly digest: Digest;
  readonly sizeBytes: number;
  /** The type as it was pulled or pushed; it tells the compression. */
  readonly mediaType: string;
}

export interface WrittenManifest {
  readonly bytes: Buffer;
  readonly digest: Digest;
  readonly mediaType: string;
}

export type ManifestFormat = 'docker' | 'oci';

type LayerCompression = 'gzip' | 'zstd' | 'none';

const TYPES = {
  docker: {
    manifest: 'application/vnd.docker.distribution.manifest.v2+json',
    config: 'application/vnd.docker.container.image.v1+json',
    layer: {
      gzip: 'application/vnd.docker.image.rootfs.diff.tar.gzip',
      zstd: 'application/vnd.docker.image.rootfs.diff.tar.zstd',
      none: 'application/vnd.docker.image.rootfs.diff.tar',
    },
  },
  oci: {
    manifest: 'application/vnd.oci.image.manifest.v1+json',
    config: 'application/vnd.oci.image.config.v1+json',
    layer: {
      gzip: 'application/vnd.oci.image.layer.v1.tar+gzip',
      zstd: 'application/vnd.oci.image.layer.v1.tar+zstd',
      none: 'application/vnd.oci.image.layer.v1.tar',
    },
  },
} as const;

/** Media type of a layer that is compressed here. */
export const PUSHED_LAYER_TYPE: string = TYPES.docker.layer.gzip;

function compressionOf(mediaType: string): LayerCompression {
  if (/[.+]zstd$/.test(mediaType)) return 'zstd';
  return /[.+]gzip$/.test(mediaType) ? 'gzip' : 'none';
}

/** Returns the type that a format has for a layer with the same compression. */
export function layerType(format: ManifestFormat, mediaType: string): string {
  return TYPES[format].layer[compressionOf(mediaType)];
}

/** Returns the format that suits the blobs: OCI if some came from there, because only OCI knows zstd. */
export function formatFor(layers: readonly PushedBlob[]): ManifestFormat {
  return layers.some(
    ({ mediaType }) => mediaType.startsWith('application/vnd.oci.') || compressionOf(mediaType) === 'zstd',
  )
    ? 'oci'
    : 'docker';
}

/** Writes the manifest. @param layers the lowest one first. */
export function writeManifest(format: ManifestFormat, config: Buffer, layers: readonly PushedBlob[]): WrittenManifest {
  const types = TYPES[format];
  const document = {
    schemaVersion: 2,
    mediaType: types.manifest,
    config: { mediaType: types.config, size: config.length, digest: digestOf(config) },
    layers: layers.map(({ digest, sizeBytes, mediaType }) => ({
      mediaType: types.layer[compressionOf(mediaType)],
      size: sizeBytes,
      digest,
    })),
  };
  const bytes = Buffer.from(JSON.stringify(document, undefined, 3));
  return { bytes, digest: digestOf(bytes), mediaType: types.manifest };
}
