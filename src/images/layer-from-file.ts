/** Makes a layer of the file of a tar: the way of everything that gives layers other than pulls and archives do. */
import { statfs } from 'node:fs/promises';
import { dataLoss } from '../errors/engine-error.js';
import type { Digest, LayerInfo, LayerStore } from '../ports/storage.js';
import type { WorkerPool } from '../workers/pool.js';

export interface LayerFileDeps {
  readonly layers: Pick<LayerStore, 'stage'>;
  readonly pool: WorkerPool;
}

export interface TarFile {
  /** File of the tar: plain, gzip or zstd. */
  readonly blobPath: string;
  readonly parent: Digest | undefined;
  /** The digest that the tar must have; undefined: whatever it has. */
  readonly diffId?: Digest;
}

/**
 * Returns the layer, on which nobody holds a reference yet. It cannot be cancelled: a worker that is ended takes the
 * tasks of others with it.
 * @throws EngineError data-loss for what is no tar, ends early or has another digest.
 */
export async function layerFromFile(
  { layers, pool }: LayerFileDeps,
  { blobPath, parent, diffId }: TarFile,
): Promise<LayerInfo> {
  const staged = await layers.stage(parent);
  try {
    const { diffDir, tarSplitPath, idMaps } = staged;
    const { bavail, bsize } = await statfs(diffDir);
    const room = bavail * bsize;
    const extracted = await pool.run('extract-layer', { blobPath, maxTarBytes: room, diffDir, tarSplitPath, idMaps });
    if (diffId !== undefined && extracted.diffId !== diffId)
      throw dataLoss(`the layer is ${extracted.diffId} and not ${diffId}`, { code: 'DIFF_ID_MISMATCH' });
    return await staged.commit({ ...extracted, parent }, pool);
  } catch (error) {
    await staged.discard();
    throw error;
  }
}
