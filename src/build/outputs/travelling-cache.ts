/** The cache of a build in the form in which it leaves this engine. */
import { writeCacheDocument } from '../cache/cache-document.js';
import { dataLoss } from '../../errors/engine-error.js';
import type { CachedStep } from '../../ports/build.js';
import type { Digest, LayerStore } from '../../ports/storage.js';

export interface TravellingLayer {
  readonly chainId: Digest;
  readonly diffId: Digest;
}

/** A layer as a file, compressed or not. */
export interface LayerBlob {
  readonly digest: Digest;
  readonly sizeBytes: number;
  readonly mediaType: string;
}

export interface TravellingCache {
  /** Each layer once, after the one below it. */
  readonly layers: readonly TravellingLayer[];
  /** @param blobs of the layers, in their order. */
  readonly document: (blobs: readonly LayerBlob[]) => Buffer;
}

/** @param steps whose layers are held. */
export function travellingCache(steps: readonly CachedStep[], store: Pick<LayerStore, 'find'>): TravellingCache {
  const indexes = new Map<Digest, number>();
  const layers: (TravellingLayer & { readonly parent: number })[] = [];
  for (const step of steps) {
    let parent = -1;
    for (const chainId of step.layers) {
      const known = indexes.get(chainId);
      if (known === undefined) {
        const layer = store.find(chainId);
        if (layer === undefined) throw dataLoss(`layer ${chainId} is not here`, { code: 'LAYER_MISSING' });
        indexes.set(chainId, layers.length);
        layers.push({ chainId, diffId: layer.diffId, parent });
      }
      parent = known ?? layers.length - 1;
    }
  }
  return {
    layers,
    document: (blobs) =>
      writeCacheDocument({
        layers: layers.map(({ diffId, parent }, at) => {
          const blob = blobs[at];
          if (blob === undefined) throw new Error(`layer ${diffId} has no blob`);
          return { ...blob, diffId, parent };
        }),
        records: steps.map(({ key, layers: chain, createdAt }) => {
          const top = chain.at(-1);
          return { key, layer: (top && indexes.get(top)) ?? -1, createdAt };
        }),
      }),
  };
}
