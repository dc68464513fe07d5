/** A cache that a client has in a directory of its own: it sends the blobs that are asked for. */
import { readCacheDocument } from '../../build/cache/cache-document.js';
import { dataLoss } from '../../errors/engine-error.js';
import type { ContentSource } from '../../ports/build.js';
import type { Digest } from '../../ports/storage.js';
import { cacheConfigOf } from '../../registry/cache-manifest.js';
import { type ContentDeps, ContentLayers, readDocument } from './content-layers.js';
import { documentSteps, type RemoteCache } from './remote-steps.js';

/** @param manifest digest of the manifest of the cache. @throws EngineError for what is no cache. */
export async function contentCache(
  deps: ContentDeps,
  content: ContentSource,
  manifest: Digest,
  signal: AbortSignal,
): Promise<RemoteCache> {
  const config = cacheConfigOf(await readDocument(content, manifest, signal));
  if (config === undefined) throw dataLoss(`${manifest} is not a manifest of a cache`, { code: 'BAD_CACHE' });
  const findStep = documentSteps(readCacheDocument(await readDocument(content, config.digest, signal)));
  const layers = new ContentLayers(deps, content);
  return {
    find: (key) => {
      const step = findStep(key);
      if (step === undefined) return undefined;
      const byChain = new Map(step.layers.map((layer) => [layer.chainId, layer]));
      const bring = (wanted: Digest, abort: AbortSignal): Promise<void> => layers.bring(wanted, byChain, abort);
      return { createdAt: step.createdAt, layers: [...byChain.keys()], bring };
    },
  };
}
