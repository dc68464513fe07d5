/**
 * The document by which caches of builds travel between engines: of the type `application/vnd.buildkit.cacheconfig.v0`,
 * or as a member of an image's configuration, where the layers are those of the image. Each record names a step by its
 * key and the topmost of the layers that it left. Links between records, by which BuildKit finds steps without their
 * keys, are not needed here: a key of this engine stands for all that a step depends on.
 */
import { dataLoss, messageOf } from '../../errors/engine-error.js';
import { isDigest } from '../../images/reference.js';
import type { Digest } from '../../ports/storage.js';
import { parseForeignJson } from '../../text/foreign-json.js';

/** The member of an image's configuration, in base64. */
export const INLINE_CACHE = 'moby.buildkit.cache.v0';

export interface CacheLayer {
  readonly digest: Digest;
  readonly mediaType: string;
  readonly diffId: Digest;
  readonly sizeBytes: number;
  /** Index of the layer below; -1 for the lowest. */
  readonly parent: number;
}

export interface CacheRecord {
  /** sha256 in hex. */
  readonly key: string;
  /** Index of the topmost layer. */
  readonly layer: number;
  /** ms since 1970. */
  readonly createdAt: number;
}

export interface CacheDocument {
  /** undefined: a layer of which the document does not say enough. */
  readonly layers: readonly (CacheLayer | undefined)[];
  readonly records: readonly CacheRecord[];
}

/** A document of a build with thousands of steps has some hundred kilobytes. Reading blocks other work. */
export const MAX_DOCUMENT_BYTES = 1 << 20;
const MAX_RECORDS = 20_000;
/** An image can have no more layers. */
const MAX_CHAIN = 500;

type Unknown<T> = { readonly [K in keyof T]?: unknown };

interface WrittenLayer {
  readonly blob: string;
  readonly parent: number;
  readonly annotations: { readonly mediaType: string; readonly diffID: string; readonly size: number };
}

interface WrittenRecord {
  readonly digest: string;
  readonly results: readonly { readonly layer: number; readonly createdAt: string }[];
}

/** Reads a document. Parts that say nothing useful are left out. @throws EngineError data-loss for anything else. */
export function readCacheDocument(bytes: Buffer): CacheDocument {
  if (bytes.length > MAX_DOCUMENT_BYTES) throw dataLoss('the cache document is too large', { code: 'BAD_CACHE' });
  let value: { readonly layers?: unknown; readonly records?: unknown } | null;
  try {
    value = parseForeignJson(bytes) as typeof value;
  } catch (error) {
    throw dataLoss(`invalid cache document: ${messageOf(error)}`, { code: 'BAD_CACHE', cause: error });
  }
  return {
    layers: listOf(value?.layers).map((layer) => layerOf(layer as Unknown<WrittenLayer> | null)),
    records: listOf(value?.records)
      .slice(0, MAX_RECORDS)
      .flatMap((record) => recordsOf(record as Unknown<WrittenRecord> | null)),
  };
}

/** Writes a document. The layers of one that goes into an image are left out. */
export function writeCacheDocument({ layers, records }: CacheDocument): Buffer {
  const shownLayers = layers.map((layer): WrittenLayer => ({
    blob: layer?.digest ?? '',
    parent: layer?.parent ?? -1,
    annotations: {
      mediaType: layer?.mediaType ?? '',
      diffID: layer?.diffId ?? '',
      size: layer?.sizeBytes ?? 0,
    },
  }));
  const shownRecords = records.map(({ key, layer, createdAt }): WrittenRecord => ({
    digest: `sha256:${key}`,
    results: [{ layer, createdAt: new Date(createdAt).toISOString() }],
  }));
  return Buffer.from(JSON.stringify({ layers: shownLayers, records: shownRecords }));
}

/** Returns a layer with all below it, the lowest first; undefined for a chain that is broken or too long. */
export function chainBelow(document: CacheDocument, top: number): readonly CacheLayer[] | undefined {
  const chain: CacheLayer[] = [];
  for (let at = top; at !== -1;) {
    const layer = document.layers[at];
    if (layer === undefined || chain.length >= MAX_CHAIN) return undefined;
    chain.push(layer);
    at = layer.parent;
  }
  return chain.length === 0 ? undefined : chain.reverse();
}

function layerOf(layer: Unknown<WrittenLayer> | null): CacheLayer | undefined {
  const { blob, parent = 0, annotations } = layer ?? {};
  const { mediaType, diffID, size } = (annotations ?? {}) as Unknown<WrittenLayer['annotations']>;
  if (!isDigest(blob) || !isDigest(diffID) || typeof mediaType !== 'string') return undefined;
  if (!Number.isSafeInteger(parent) || !Number.isSafeInteger(size) || (size as number) < 0) return undefined;
  return { digest: blob, mediaType, diffId: diffID, sizeBytes: size as number, parent: parent as number };
}

function recordsOf(record: Unknown<WrittenRecord> | null): CacheRecord[] {
  const { digest, results } = record ?? {};
  const [result] = listOf(results);
  const { layer, createdAt } = (result ?? {}) as Unknown<WrittenRecord['results'][number]>;
  if (!isDigest(digest) || !Number.isSafeInteger(layer)) return [];
  const time = typeof createdAt === 'string' ? Date.parse(createdAt) : Number.NaN;
  const key = digest.slice('sha256:'.length);
  return [{ key, layer: layer as number, createdAt: Number.isNaN(time) ? Date.now() : time }];
}

function listOf(value: unknown): readonly unknown[] {
  return Array.isArray(value) ? value : [];
}
