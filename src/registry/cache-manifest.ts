/** Finds the cache of a build in what a reference of a registry names: a manifest of a cache, or an image with one. */
import type { Digest } from '../ports/storage.js';

export const CACHE_CONFIG_TYPE = 'application/vnd.buildkit.cacheconfig.v0';

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
    value = JSON.parse(manifest.toString('utf8')) as typeof value;
  } catch {
    return undefined;
  }
  const manifests: readonly unknown[] = Array.isArray(value?.manifests) ? value.manifests : [];
  return [value?.config, ...manifests].map(descriptorOf).find((found) => found !== undefined);
}

function descriptorOf(value: unknown): CacheConfigBlob | undefined {
  const { mediaType, digest, size } = (value ?? {}) as Readonly<Record<string, unknown>>;
  if (mediaType !== CACHE_CONFIG_TYPE || typeof digest !== 'string' || !/^sha256:[a-f0-9]{64}$/.test(digest))
    return undefined;
  return typeof size === 'number' && Number.isSafeInteger(size) && size >= 0
    ? { digest: digest as Digest, sizeBytes: size }
    : undefined;
}
