/** A cache that a client has in a directory of its own: it sends the blobs that are asked for. */
import { createHash, randomUUID } from 'node:crypto';
import { createWriteStream } from 'node:fs';
import { rm } from 'node:fs/promises';
import { join } from 'node:path';
import { pipeline } from 'node:stream/promises';
import { MAX_DOCUMENT_BYTES, readCacheDocument } from '../../build/cache/cache-document.js';
import { withinRoom } from '../../build/sources/disk-room.js';
import { dataLoss } from '../../errors/engine-error.js';
import { layerFromFile, type LayerFileDeps } from '../../images/layer-from-file.js';
import type { ContentSource } from '../../ports/build.js';
import type { Digest, LayerStore } from '../../ports/storage.js';
import { cacheConfigOf } from '../../registry/cache-manifest.js';
import type { ResolvedLayer } from '../../registry/resolve.js';
import { storageError } from '../../storage/storage-error.js';
import { documentSteps, type RemoteCache } from './remote-steps.js';

export interface ContentCacheDeps extends LayerFileDeps {
  readonly layers: LayerStore;
  /** Directory for blobs until they are unpacked. */
  readonly tmpDir: string;
}

/** @param manifest digest of the manifest of the cache. @throws EngineError for what is no cache. */
export async function contentCache(
  deps: ContentCacheDeps,
  content: ContentSource,
  manifest: Digest,
  signal: AbortSignal,
): Promise<RemoteCache> {
  const config = cacheConfigOf(await document(content, manifest, signal));
  if (config === undefined) throw dataLoss(`${manifest} is not a manifest of a cache`, { code: 'BAD_CACHE' });
  const findStep = documentSteps(readCacheDocument(await document(content, config.digest, signal)));
  const bringing = new Map<Digest, Promise<void>>();
  return {
    find: (key) => {
      const step = findStep(key);
      if (step === undefined) return undefined;
      const byChain = new Map(step.layers.map((layer) => [layer.chainId, layer]));
      const bring = async (wanted: Digest, abort: AbortSignal): Promise<void> => {
        if (deps.layers.find(wanted) === undefined) {
          const layer = byChain.get(wanted);
          if (layer === undefined) throw dataLoss(`the cache has no layer ${wanted}`, { code: 'BAD_CACHE' });
          if (layer.parent !== undefined) await bring(layer.parent, abort);
          try {
            const own = bringing.get(wanted) ?? fetchLayer(deps, content, layer, abort);
            bringing.set(wanted, own);
            await own.finally(() => bringing.delete(wanted));
          } finally {
            if (layer.parent !== undefined) await deps.layers.release(layer.parent);
          }
        }
        deps.layers.retain(wanted);
      };
      return { createdAt: step.createdAt, layers: [...byChain.keys()], bring };
    },
  };
}

/** Reads a small blob. @throws EngineError data-loss when it is too long, or another one. */
async function document(content: ContentSource, digest: Digest, signal: AbortSignal): Promise<Buffer> {
  const pieces: Uint8Array[] = [];
  let bytes = 0;
  for await (const piece of content.read(digest, signal)) {
    bytes += piece.length;
    if (bytes > MAX_DOCUMENT_BYTES) throw dataLoss('the cache document is too large', { code: 'BAD_CACHE' });
    pieces.push(piece);
  }
  const whole = Buffer.concat(pieces);
  if (`sha256:${createHash('sha256').update(whole).digest('hex')}` !== digest)
    throw dataLoss(`unexpected content of ${digest}`, { code: 'DIGEST_MISMATCH' });
  return whole;
}

/** The layer below is here. Nobody holds the layer before the caller does. */
async function fetchLayer(
  { layers, pool, tmpDir }: ContentCacheDeps,
  content: ContentSource,
  { blob, diffId, parent }: ResolvedLayer,
  signal: AbortSignal,
): Promise<void> {
  const blobPath = join(tmpDir, `cache-layer-${randomUUID()}`);
  try {
    await withinRoom(tmpDir, signal, (abort) =>
      receive(content.read(blob.digest, abort), blob.sizeBytes, blobPath, abort),
    );
    await layerFromFile({ layers, pool }, { blobPath, parent, diffId });
  } finally {
    await rm(blobPath, { force: true });
  }
}

async function receive(
  bytes: AsyncIterable<Uint8Array>,
  sizeBytes: number,
  path: string,
  signal: AbortSignal,
): Promise<void> {
  const counted = async function* (): AsyncGenerator<Uint8Array> {
    let left = sizeBytes;
    for await (const piece of bytes) {
      left -= piece.length;
      if (left < 0) throw dataLoss('a layer of the cache is longer than it says', { code: 'BAD_CACHE' });
      yield piece;
    }
  };
  try {
    await pipeline(counted, createWriteStream(path, { flags: 'wx', mode: 0o600 }), { signal });
  } catch (error) {
    throw storageError(error, 'importing a cache');
  }
}
