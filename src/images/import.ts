/** Makes an image of one layer from an archive of a file system. */
import { randomUUID } from 'node:crypto';
import { createWriteStream } from 'node:fs';
import { rm } from 'node:fs/promises';
import { join } from 'node:path';
import { pipeline } from 'node:stream/promises';
import { cancelled, invalid, isEngineError } from '../errors/engine-error.js';
import type { Image, ImageConfigDocument, ImageStore } from '../ports/images.js';
import type { LayerStore } from '../ports/storage.js';
import type { Platform } from '../registry/platform.js';
import { DEFAULT_LIMITS, sendRequest } from '../registry/http.js';
import { storageError } from '../storage/storage-error.js';
import type { WorkerPool } from '../workers/pool.js';
import { applyChanges } from './changes.js';
import { layerFromFile } from './layer-from-file.js';

export interface ImportDeps {
  readonly images: ImageStore;
  readonly layers: LayerStore;
  readonly pool: WorkerPool;
  /** Directory for the archive until it is unpacked. */
  readonly tmpDir: string;
}

export interface ImportRequest {
  readonly source: AsyncIterable<Buffer>;
  /** Name with tag to give to the image. */
  readonly reference: string | undefined;
  readonly comment: string;
  /** Dockerfile instructions. */
  readonly changes: readonly string[];
  readonly platform: Platform;
  /** Called at every piece with the bytes read so far. */
  readonly onProgress: (bytes: number) => void;
  readonly signal: AbortSignal;
}

/**
 * Reads the archive (plain, gzip or zstd) and registers the image. Throws `invalid` for bad changes before anything is
 * read, and for bytes that are no archive; `cancelled` when the signal aborts.
 */
export async function importImage(
  { images, layers, pool, tmpDir }: ImportDeps,
  request: ImportRequest,
): Promise<Image> {
  const config = applyChanges({}, request.changes);
  const blobPath = join(tmpDir, `import-${randomUUID()}`);
  try {
    await receive(request, blobPath);
    const layer = await layerFromFile({ layers, pool }, { blobPath, parent: undefined }).catch(refuseDamage);
    layers.retain(layer.chainId);
    try {
      request.signal.throwIfAborted();
      const image = await images.createMade(Buffer.from(JSON.stringify(documentOf(request, config, layer.diffId))));
      if (request.reference !== undefined) await images.tag(request.reference, image.id);
      return images.get(image.id) ?? image;
    } finally {
      await layers.release(layer.chainId);
    }
  } catch (error) {
    throw request.signal.aborted && !isEngineError(error)
      ? cancelled('the import was cancelled', { cause: error })
      : error;
  } finally {
    await rm(blobPath, { force: true });
  }
}

/** Turns damage of the archive into `invalid`: it came from the client, and nothing that was stored is lost. */
function refuseDamage(error: unknown): never {
  throw isEngineError(error) && error.kind === 'data-loss'
    ? invalid(error.message, { code: 'BAD_ARCHIVE', cause: error })
    : error;
}

async function receive({ source, onProgress, signal }: ImportRequest, path: string): Promise<void> {
  let bytes = 0;
  const counted = async function* (): AsyncGenerator<Buffer> {
    for await (const chunk of source) {
      bytes += chunk.length;
      onProgress(bytes);
      yield chunk;
    }
  };
  try {
    await pipeline(counted(), createWriteStream(path, { flags: 'wx', mode: 0o600 }), { signal });
  } catch (error) {
    throw storageError(error, 'importing an image');
  }
}

function documentOf(
  { comment, platform }: ImportRequest,
  config: ImageConfigDocument['config'],
  diffId: ImageConfigDocument['rootfs']['diff_ids'][number],
): ImageConfigDocument {
  const created = new Date().toISOString();
  const note = comment === '' ? {} : { comment };
  return {
    architecture: platform.architecture,
    ...(platform.variant === '' ? {} : { variant: platform.variant }),
    os: platform.os,
    created,
    ...note,
    ...(config === undefined ? {} : { config }),
    rootfs: { type: 'layers', diff_ids: [diffId] },
    history: [{ created, ...note }],
  };
}

/** Opens the archive at a URL. Throws `invalid` for a text that is no http(s) URL and for any status but 200. */
export async function openUrl(
  text: string,
  signal: AbortSignal,
): Promise<{ readonly url: URL; readonly totalBytes: number; readonly body: AsyncIterable<Buffer> }> {
  const scheme = /^([a-z][a-z0-9+.-]*):\/\//i.exec(text)?.[1];
  if (scheme !== undefined && !/^https?$/i.test(scheme))
    throw invalid(`invalid fromSrc: unsupported protocol scheme ${JSON.stringify(scheme)}`, { code: 'INVALID_SOURCE' });
  const full = scheme === undefined ? `http://${text}` : text;
  if (!URL.canParse(full))
    throw invalid(`invalid fromSrc: ${JSON.stringify(text)} is not a URL`, { code: 'INVALID_SOURCE' });
  const url = new URL(full);
  const response = await sendRequest({
    method: 'GET',
    url: url.href,
    tls: { verify: true },
    limits: DEFAULT_LIMITS,
    signal,
  });
  if (response.statusCode !== 200) {
    response.destroy();
    throw invalid(`failed to fetch ${url.origin}${url.pathname}: ${response.statusCode} ${response.statusMessage}`, {
      code: 'SOURCE_STATUS',
    });
  }
  return { url, totalBytes: Number(response.headers['content-length'] ?? 0), body: response };
}
