/** Gives the files of a result the time that a client asks for, so that equal builds give equal images. */
import { LayerBlobs } from '../../../build/outputs/layer-blobs.js';
import { layerFromFile, type TarFile } from '../../../images/layer-from-file.js';
import type { PlatformResult } from '../../../ports/build.js';
import { chainId, chainOf } from '../../../ports/chain-id.js';
import type { Digest } from '../../../ports/storage.js';
import type { SolveTools } from './tools.js';

/**
 * Returns the result with layers in which later times have become this one. Layers of the base image stay as they are.
 * The layers are held until the build ends.
 * @param epoch in seconds since 1970.
 */
export async function rewriteTimes(
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
      signal.throwIfAborted();
      topLayer = await addLayer(tools, { blobPath: blobs.path(digest), diffId, parent: topLayer });
      diffIds.push(diffId);
    }
  } finally {
    await blobs.close();
  }
  return { ...result, topLayer, config: { ...config, rootfs: { ...config.rootfs, diff_ids: diffIds } } };
}

async function addLayer(
  { deps, layers: held }: SolveTools,
  file: TarFile & { readonly diffId: Digest },
): Promise<Digest> {
  const chain = chainId(file.parent, file.diffId);
  if (deps.layers.find(chain) === undefined) await layerFromFile(deps.blobParts, file);
  held.hold(chain);
  return chain;
}
