/** Makes the files of a plugin of the layers that a registry has. */
import { mkdir, rename, rm, statfs } from 'node:fs/promises';
import { join } from 'node:path';
import { dataLoss, invalid } from '../../errors/engine-error.js';
import type { PluginConfig } from '../../ports/managed-plugin.js';
import type { WorkerPool } from '../../workers/pool.js';
import type { StagedPlugin } from './plugin-store.js';

/** A plugin has one layer mostly; so many are far more than any has. */
const MAX_LAYERS = 50;

/**
 * Unpacks the layers one above the other. The blobs stay where they are.
 * @param blobs paths of the files, the lowest layer first.
 * @throws EngineError data-loss for a layer that is damaged or not the one that the configuration names.
 */
export async function unpackRootfs(
  pool: Pick<WorkerPool, 'run'>,
  staged: StagedPlugin,
  { rootfs }: PluginConfig,
  blobs: readonly string[],
): Promise<void> {
  const diffIds = rootfs?.diff_ids ?? [];
  if (blobs.length === 0 || blobs.length > MAX_LAYERS || diffIds.length !== blobs.length)
    throw invalid("layers from manifest don't match plugin configuration", { code: 'LAYER_MISMATCH' });
  for (const [at, blobPath] of blobs.entries()) {
    const diffDir = join(staged.dir, 'layer');
    const tarSplitPath = join(staged.dir, 'tar-split');
    await mkdir(diffDir, { mode: 0o755 });
    const { bavail, bsize } = await statfs(staged.dir);
    const { diffId } = await pool.run('extract-layer', {
      blobPath,
      maxTarBytes: bavail * bsize,
      diffDir,
      tarSplitPath,
    });
    if (diffId !== diffIds[at])
      throw dataLoss(`the layer is ${diffId} and not ${diffIds[at]}`, { code: 'DIFF_ID_MISMATCH' });
    await rm(tarSplitPath);
    if (at === 0) {
      await rm(staged.rootfs, { recursive: true });
      await rename(diffDir, staged.rootfs);
    } else {
      await pool.run('apply-difference', { difference: diffDir, tree: staged.rootfs });
      await pool.run('remove-trees', { paths: [diffDir] });
    }
  }
}
