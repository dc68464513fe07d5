/** Layers and documents in a directory of content that a client offers: it sends the blobs that are asked for. */
import { createHash, randomUUID } from 'node:crypto';
import { createWriteStream } from 'node:fs';
import { rm } from 'node:fs/promises';
import { join } from 'node:path';
import { pipeline } from 'node:stream/promises';
import { MAX_DOCUMENT_BYTES } from '../../build/cache/cache-document.js';
import { withinRoom } from '../../build/sources/disk-room.js';
import { dataLoss } from '../../errors/engine-error.js';
import { layerFromFile, type LayerFileDeps } from '../../images/layer-from-file.js';
import type { ContentSource } from '../../ports/build.js';
import type { Digest, LayerStore } from '../../ports/storage.js';
import type { ResolvedLayer } from '../../registry/resolve.js';
import { storageError } from '../../storage/storage-error.js';

export interface ContentDeps extends LayerFileDeps {
  readonly layers: LayerStore;
  /** Directory for blobs until they are unpacked. */
  readonly tmpDir: string;
}

export class ContentLayers {
  readonly #bringing = new Map<Digest, Promise<void>>();

  constructor(
    private readonly deps: ContentDeps,
    private readonly content: ContentSource,
  ) {}

  /**
   * Brings a layer in, with those below. Resolves with a reference on it that the caller releases.
   * @param known has all of them by their chain IDs.
   * @throws EngineError data-loss for blobs that are others than the manifest says.
   */
  async bring(wanted: Digest, known: ReadonlyMap<Digest, ResolvedLayer>, signal: AbortSignal): Promise<void> {
    const { layers } = this.deps;
    if (layers.find(wanted) === undefined) {
      const layer = known.get(wanted);
      if (layer === undefined) throw dataLoss(`there is no layer ${wanted}`, { code: 'BAD_CONTENT' });
      if (layer.parent !== undefined) await this.bring(layer.parent, known, signal);
      try {
        const own = this.#bringing.get(wanted) ?? fetchLayer(this.deps, this.content, layer, signal);
        this.#bringing.set(wanted, own);
        await own.finally(() => this.#bringing.delete(wanted));
      } finally {
        if (layer.parent !== undefined) await layers.release(layer.parent);
      }
    }
    layers.retain(wanted);
  }
}

/** Reads a small blob. @throws EngineError data-loss when it is too long, or another one. */
export async function readDocument(content: ContentSource, digest: Digest, signal: AbortSignal): Promise<Buffer> {
  const pieces: Uint8Array[] = [];
  let bytes = 0;
  for await (const piece of content.read(digest, signal)) {
    bytes += piece.length;
    if (bytes > MAX_DOCUMENT_BYTES) throw dataLoss('a document of the content is too large', { code: 'BAD_CONTENT' });
    pieces.push(piece);
  }
  const whole = Buffer.concat(pieces);
  if (`sha256:${createHash('sha256').update(whole).digest('hex')}` !== digest)
    throw dataLoss(`unexpected content of ${digest}`, { code: 'DIGEST_MISMATCH' });
  return whole;
}

/** The layer below is here. Nobody holds the layer before the caller does. */
async function fetchLayer(
  { layers, pool, tmpDir }: ContentDeps,
  content: ContentSource,
  { blob, diffId, parent }: ResolvedLayer,
  signal: AbortSignal,
): Promise<void> {
  const blobPath = join(tmpDir, `content-layer-${randomUUID()}`);
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
      if (left < 0) throw dataLoss('a layer is longer than its manifest says', { code: 'BAD_CONTENT' });
      yield piece;
    }
  };
  try {
    await pipeline(counted, createWriteStream(path, { flags: 'wx', mode: 0o600 }), { signal });
  } catch (error) {
    throw storageError(error, 'fetching a layer from the client');
  }
}
