/** Resolves an image in a directory of content: manifest, platform choice, config and the layers' identities. */
import { invalid, notFound } from '../errors/engine-error.js';
import type { ImageConfigDocument } from '../ports/images.js';
import type { Digest } from '../ports/storage.js';
import { parseManifest } from './manifest.js';
import { bestManifest, formatPlatform, hostPlatform, type Platform } from './platform.js';
import { layersOf, parseConfig, type ResolvedLayer } from './resolve.js';

export interface ContentImage {
  readonly configBytes: Buffer;
  readonly config: ImageConfigDocument;
  readonly layers: readonly ResolvedLayer[];
}

export interface ContentQuestion {
  /** That of an index or a manifest. */
  readonly digest: Digest;
  readonly platform: Platform | undefined;
  /** For messages. */
  readonly name: string;
}

/** @param read returns a document, verified. @throws EngineError for what is no image, or none of the platform. */
export async function resolveContent(
  read: (digest: Digest) => Promise<Buffer>,
  { digest, platform = hostPlatform(), name }: ContentQuestion,
): Promise<ContentImage> {
  const top = parseManifest(await read(digest), undefined, name);
  let image = top;
  if (top.kind !== 'image') {
    const entry = bestManifest(top.manifests, platform);
    if (!entry)
      throw notFound(`no matching manifest for ${formatPlatform(platform)} in the manifest list entries of ${name}`, {
        code: 'NO_MATCHING_PLATFORM',
      });
    image = parseManifest(await read(entry.digest), undefined, name);
  }
  if (image.kind !== 'image')
    throw invalid('unsupported manifest: an index inside an index', { code: 'UNSUPPORTED_MANIFEST' });
  const configBytes = await read(image.config.digest);
  const config = parseConfig(configBytes);
  return { configBytes, config, layers: layersOf(image, config) };
}
