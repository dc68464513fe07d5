/** The steps that a cache of another engine knows. */
import { type CacheDocument, type CacheLayer, type CacheRecord, chainBelow } from '../../build/cache/cache-document.js';
import { chainId } from '../../ports/chain-id.js';
import type { Digest } from '../../ports/storage.js';
import type { ResolvedLayer } from '../../registry/resolve.js';

/** A step that another build has done. */
export interface RemoteStep {
  /** ms since 1970. */
  readonly createdAt: number;
  /** Chain IDs of its layers, the lowest first. */
  readonly layers: readonly Digest[];
  /** Brings a layer that is not here. Resolves with a reference on it that the caller releases. */
  bring(layer: Digest, signal: AbortSignal): Promise<void>;
}

export interface RemoteCache {
  find(key: string): RemoteStep | undefined;
}

/** Finds a step by its key. The layers are looked up when they are asked for: a document may name many. */
export type FindStep = (
  key: string,
) => { readonly createdAt: number; readonly layers: readonly ResolvedLayer[] } | undefined;

/** Looks steps up in a document that is not a part of an image. */
export function documentSteps(document: CacheDocument): FindStep {
  const records = byKey(document.records);
  return (key) => {
    const record = records.get(key);
    const chain = record && chainBelow(document, record.layer);
    return record && chain && { createdAt: record.createdAt, layers: resolved(chain) };
  };
}

export function byKey(records: readonly CacheRecord[]): ReadonlyMap<string, CacheRecord> {
  return new Map(records.map((record) => [record.key, record]));
}

function resolved(chain: readonly CacheLayer[]): readonly ResolvedLayer[] {
  let parent: Digest | undefined;
  return chain.map(({ digest, mediaType, diffId, sizeBytes }) => {
    const blob = { digest, mediaType, sizeBytes, platform: undefined, annotations: undefined };
    const layer = { blob, diffId, chainId: chainId(parent, diffId), parent };
    parent = layer.chainId;
    return layer;
  });
}
