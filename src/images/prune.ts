/** Removal of images that nobody names (or nobody uses). */
import { isEngineError } from '../errors/engine-error.js';
import type { Digest } from '../ports/storage.js';
import { type RemovalDeps, type RemovedItem, removeImage } from './removal.js';
import { createdMs } from './selection.js';

export interface PruneSelection {
  /** If false, all images without containers are removed, tagged or not. */
  readonly danglingOnly: boolean;
  readonly untilMs: number | undefined;
  readonly matchesLabels: (labels: Readonly<Record<string, string>> | null | undefined) => boolean;
}

export interface PruneResult {
  readonly removed: readonly RemovedItem[];
  readonly reclaimedBytes: number;
}

export interface PruneDeps extends RemovalDeps {
  /** Returns the bytes on the disk of each layer. */
  readonly layerBytes: (chainIds: readonly Digest[]) => Promise<ReadonlyMap<Digest, number>>;
}

/** Removes what the selection names; images in use stay. Stops between images when the signal aborts. */
export async function pruneImages(
  deps: PruneDeps,
  selection: PruneSelection,
  signal: AbortSignal,
): Promise<PruneResult> {
  const { store } = deps;
  const removed: RemovedItem[] = [];
  let reclaimedBytes = 0;
  for (const image of store.list()) {
    if (signal.aborted) break;
    const hasChildren = store.childrenOf(image.id).length > 0;
    const names = store.namesOf(image.id);
    if (hasChildren && (names.length === 0 || selection.danglingOnly)) continue;
    if (createdMs(image) >= (selection.untilMs ?? Infinity)) continue;
    if (!selection.matchesLabels(image.config.config?.Labels)) continue;
    if (selection.danglingOnly && image.repoTags.length > 0) continue;
    const sizes: ReadonlyMap<string, number> = await deps.layerBytes(store.layersOf(image.id));
    // A commit names its image after it is there: by now it may have.
    if (names.length === 0 && store.namesOf(image.id).length > 0) continue;
    for (const name of names.length > 0 ? names : [image.id]) {
      const items = await removeUnused(deps, name);
      removed.push(...items);
      for (const item of items) if ('deleted' in item) reclaimedBytes += sizes.get(item.deleted) ?? 0;
    }
  }
  deps.emit('prune', '', { reclaimed: String(reclaimedBytes) });
  return { removed, reclaimedBytes };
}

async function removeUnused(deps: RemovalDeps, name: string): Promise<RemovedItem[]> {
  try {
    return await removeImage(deps, name, { force: false, pruneParents: true });
  } catch (error) {
    // The image is in use, or gone with another name.
    if (isEngineError(error, 'conflict') || isEngineError(error, 'not-found')) return [];
    throw error;
  }
}
