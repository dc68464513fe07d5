/** The manifests by which registries keep caches of builds. */
import type { Digest } from '../ports/storage.js';
import { digestOf } from './client.js';
import { layerType, type PushedBlob, type WrittenManifest } from './manifest-writer.js';
import { parseForeignJson } from '../text/foreign-json.js';

export const CACHE_CONFIG_TYPE = 'application/vnd.buildkit.cacheconfig.v0';

/** `image`: a manifest as images have it; `index`: the older form, which some registries refuse. */
export type CacheManifestForm = 'image' | 'index';

interface CacheConfigBlob {
  readonly digest: Digest;
  readonly sizeBytes: number;
}

/**
 * Returns the blob with the cache document of a manifest. BuildKit writes it as the configuration of a manifest or, in
 * an index, beside the layers. undefined: the manifest is that of something else.
 */
export function cacheConfigOf(manifest: Buffer): CacheConfigBlob | undefined {
  let value: { readonly config?: unknown; readonly manifests?: unknown } | null;
  try {
    value = parseForeignJson(manifest) as typeof value;
  } catch {
    return undefined;
  }
  const manifests: readonly unknown[] = Array.isArray(value?.manifests) ? value.manifests : [];
  return [value?.config, ...manifests].map(descriptorOf).find((found) => found !== undefined);
}

/** Writes the manifest of a cache. @param layers in the order in which the document names them. */
export function cacheManifest(form: CacheManifestForm, config: Buffer, layers: readonly PushedBlob[]): WrittenManifest {
  const described = { mediaType: CACHE_CONFIG_TYPE, digest: digestOf(config), size: config.length };
  const blobs = layers.map(({ digest, sizeBytes, mediaType }) => ({
    mediaType: layerType('oci', mediaType),
    digest,
    size: sizeBytes,
  }));
  const mediaType = `application/vnd.oci.image.${form === 'image' ? 'manifest' : 'index'}.v1+json`;
  const content = form === 'image' ? { config: described, layers: blobs } : { manifests: [...blobs, described] };
  const bytes = Buffer.from(JSON.stringify({ schemaVersion: 2, mediaType, ...content }));
  return { bytes, digest: digestOf(bytes), mediaType };
}

function descriptorOf(value: unknown): CacheConfigBlob | undefined {
  const { mediaType, digest, size } = (value ?? {}) as Readonly<Record<string, unknown>>;
  if (mediaType !== CACHE_CONFIG_TYPE || typeof digest !== 'string' || !/^sha256:[a-f0-9]{64}$/.test(digest))
    return undefined;
  return typeof size === 'number' && Number.isSafeInteger(size) && size >= 0
    ? { digest: digest as Digest, sizeBytes: size }
    : undefined;
}
