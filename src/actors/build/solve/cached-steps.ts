/** The steps of a build that have gone into its cache, for caches that travel. */
import { writeCacheDocument } from '../../../build/cache/cache-document.js';
import type { CachedStep, CacheExport } from '../../../ports/build.js';
import type { Digest, LayerStore } from '../../../ports/storage.js';
import type { Schedule } from './schedule.js';

/**
 * Returns the steps with their layers, in an order that is the same for equal builds. Steps without layers need not be
 * kept: to do them costs nothing.
 * @param tops of the results, which `min` asks for.
 * @param epoch takes the place of the times of the steps, in ms, so that equal builds give equal caches.
 */
export function cachedSteps(
  schedule: Schedule,
  layers: Pick<LayerStore, 'find'>,
  { mode, tops, epoch }: Pick<CacheExport, 'mode'> & { readonly tops: readonly Digest[]; readonly epoch?: number },
): CachedStep[] {
  const chains = new Map<Digest, readonly Digest[]>();
  const chain = (layer: Digest): readonly Digest[] => {
    const known = chains.get(layer) ?? chainTo(layer, layers);
    chains.set(layer, known);
    return known;
  };
  const wanted = mode === 'max' ? undefined : new Set(tops.flatMap(chain));
  const found = schedule.steps.flatMap((step) => {
    const { content, isImage } = step.operation;
    const { layer, portable, createdAt } = schedule.resultOf(step);
    if (content === undefined || isImage === true || layer === undefined) return [];
    if (wanted !== undefined && !wanted.has(layer)) return [];
    return [{ key: portable, layers: chain(layer), createdAt: epoch ?? createdAt }];
  });
  return found.sort((a, b) => a.layers.length - b.layers.length || (a.key < b.key ? -1 : 1));
}

/** Returns the document that goes into the configuration of an image, in base64. */
export function inlineCache(steps: readonly CachedStep[]): string {
  const records = steps.map(({ key, layers, createdAt }) => ({ key, layer: layers.length - 1, createdAt }));
  return writeCacheDocument({ layers: [], records }).toString('base64');
}

function chainTo(top: Digest, layers: Pick<LayerStore, 'find'>): readonly Digest[] {
  const chain: Digest[] = [];
  for (let layer: Digest | undefined = top; layer !== undefined; layer = layers.find(layer)?.parent) chain.push(layer);
  return chain.reverse();
}
