/** The documents by which registries keep plugins: manifests as of images, with configurations of their own. */
import { digestOf } from '../../registry/client.js';
import type { PushedBlob, WrittenManifest } from '../../registry/manifest-writer.js';

export const PLUGIN_CONFIG_TYPE = 'application/vnd.docker.plugin.v1+json';
const MANIFEST_TYPE = 'application/vnd.docker.distribution.manifest.v2+json';
export const PLUGIN_LAYER_TYPE = 'application/vnd.docker.image.rootfs.diff.tar.gzip';

/** Writes the manifest of a plugin. @param layers the lowest one first. */
export function pluginManifest(config: Buffer, layers: readonly PushedBlob[]): WrittenManifest {
  const document = {
    schemaVersion: 2,
    mediaType: MANIFEST_TYPE,
    config: { mediaType: PLUGIN_CONFIG_TYPE, size: config.length, digest: digestOf(config) },
    layers: layers.map(({ mediaType, sizeBytes: size, digest }) => ({ mediaType, size, digest })),
  };
  const bytes = Buffer.from(JSON.stringify(document, undefined, 3));
  return { bytes, digest: digestOf(bytes), mediaType: MANIFEST_TYPE };
}
