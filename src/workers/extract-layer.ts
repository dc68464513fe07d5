/** Task: one layer from a file (compressed or not) into its directory, with its diff ID found on the way. */
import { createHash } from 'node:crypto';
import { createReadStream } from 'node:fs';
import type { IdMaps } from '../ports/id-maps.js';
import type { Digest } from '../ports/storage.js';
import { type ExtractResult, LayerExtractor } from '../storage/tar/layer-extractor.js';
import { storageError } from '../storage/storage-error.js';
import { createDecompressor } from './decompress.js';
import { bufferDied } from './buffer-collector.js';

export interface ExtractLayerInput {
  readonly blobPath: string;
  readonly maxTarBytes: number;
  readonly diffDir: string;
  readonly tarSplitPath: string;
  readonly idMaps?: IdMaps | undefined;
}

export interface ExtractLayerOutput extends ExtractResult {
  readonly diffId: Digest;
}

const READ_BYTES = 256 << 10;

/** Throws `data-loss` for a damaged stream and the extractor's errors. The caller deletes what was extracted so far. */
export async function extractLayer({
  blobPath,
  maxTarBytes,
  diffDir,
  tarSplitPath,
  idMaps,
}: ExtractLayerInput): Promise<ExtractLayerOutput> {
  const hash = createHash('sha256');
  const extractor = new LayerExtractor({ diffDir, tarSplitPath, limitBytes: maxTarBytes, idMaps });
  const decompressor = createDecompressor((chunk) => {
    hash.update(chunk);
    extractor.write(chunk);
  });
  try {
    for await (const chunk of createReadStream(blobPath, { highWaterMark: READ_BYTES }) as AsyncIterable<Buffer>) {
      await decompressor.write(chunk);
      bufferDied(chunk.length);
    }
    await decompressor.end();
    return { ...extractor.finish(), diffId: `sha256:${hash.digest('hex')}` };
  } catch (error) {
    decompressor.destroy();
    extractor.abort();
    throw storageError(error, 'reading a layer');
  }
}
