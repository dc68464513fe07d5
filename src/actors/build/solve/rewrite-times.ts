/** Gives the files of a result the time that a client asks for, so that equal builds give equal images. */
import { statfs } from 'node:fs/promises';
import { LayerBlobs } from '../../../build/outputs/layer-blobs.js';
import type { PlatformResult } from '../../../ports/build.js';
import { chainId, chainOf } from '../../../ports/chain-id.js';
import type { Digest } from '../../../ports/storage.js';
import type { SolveTools } from './tools.js';

/**
 * Returns the result with layers in which later times have become this one. Layers of the base image stay as they are.
 * The layers are held until the build ends.
 * @param epoch in seconds since 1970.
 */
export async function withTimes(
  tools: SolveTools,
  result: PlatformResult,
  epoch: number,
  signal: AbortSignal,
): Promise<PlatformResult> {
  const { config, baseLayers } = result;
  const { deps } = tools;
  const chain = chainOf(config.rootfs.diff_ids);
  const diffIds = config.rootfs.diff_ids.slice(0, baseLayers);
  let topLayer = chain[baseLayers - 1];
  const blobs = await LayerBlobs.open(deps.blobParts, { compression: 'uncompressed', level: undefined, epoch });
  try {
    for (const layer of chain.slice(baseLayers)) {
      const { digest, diffId } = await blobs.blob(layer, signal);
      topLayer = await addLayer(tools, { blobPath: blobs.path(digest), diffId, parent: topLayer }, signal);
      diffIds.push(diffId);
    }
  } finally {
    await blobs.close();
  }
  return { ...result, topLayer, config: { ...config, rootfs: { ...config.rootfs, diff_ids: diffIds } } };
}

interface NewLayer {
  readonly blobPath: string;
  readonly diffId: Digest;
  readonly parent: Digest | undefined;
}

async function addLayer(
  { deps, layers: held }: SolveTools,
  { blobPath, diffId, parent }: NewLayer,
  signal: AbortSignal,
): Promise<Digest> {
  const { layers, blobParts } = deps;
  const chain = chainId(parent, diffId);
  if (layers.find(chain) === undefined) {
    const staged = await layers.stage();
    try {
      const { diffDir, tarSplitPath, idMaps } = staged;
      const { bavail, bsize } = await statfs(diffDir);
      const order = { blobPath, maxTarBytes: bavail * bsize, diffDir, tarSplitPath, idMaps };
      await staged.commit({ ...(await blobParts.pool.run('extract-layer', order, { signal })), parent });
    } catch (error) {
      await staged.discard();
      throw error;
    }
  }
  held.hold(chain);
  return chain;
}
