/** Makes in one store what another one has, as a migration to another driver wants it. */
import { dataLoss } from '../../errors/engine-error.js';
import type { Digest } from '../../ports/storage.js';
import type { WorkerPool } from '../../workers/pool.js';
import type { DriverLayerStore } from './layer-store.js';

interface Stores {
  readonly from: DriverLayerStore;
  readonly to: DriverLayerStore;
  readonly workers: WorkerPool;
}

/** Makes a layer with the same tar. The layers below it must be there. @throws EngineError data-loss. */
export async function takeLayer({ from, to, workers }: Stores, chainId: Digest): Promise<void> {
  const { close, diffId, ...source } = from.openTar(chainId);
  const staged = await to.stage();
  try {
    const { diffDir, tarSplitPath, idMaps } = staged;
    const copied = await workers.run('copy-layer', { from: source, diffDir, tarSplitPath, idMaps });
    if (copied.diffId !== diffId) throw dataLoss(`layer ${diffId} was changed on disk`, { code: 'LAYER_DAMAGED' });
    await staged.commit({ parent: from.find(chainId)?.parent, ...copied });
  } catch (error) {
    await staged.discard();
    throw error;
  } finally {
    close();
  }
}

/**
 * Makes the writable layer of a container, which nobody uses meanwhile. One of this name that is there already is
 * replaced.
 * @throws EngineError invalid for options that the driver cannot keep.
 */
export async function takeWritable(
  { from, to, workers }: Stores,
  id: string,
  storageOpt: Readonly<Record<string, string>>,
): Promise<void> {
  await to.removeWritable(id);
  await to.createWritable(id, from.parentOf(id), storageOpt);
  const root = await to.mount(id);
  try {
    await from.withDifference(id, (difference) => workers.run('apply-difference', { difference, tree: root }));
  } finally {
    await to.unmount(id);
  }
}
