/** The cache that an image carries in its configuration: which of its layers the steps of its build have made. */
import { writeCacheDocument } from '../../../build/cache/cache-document.js';
import { chainOf } from '../../../ports/chain-id.js';
import type { Digest } from '../../../ports/storage.js';
import type { Schedule } from './schedule.js';

/**
 * Returns the document in base64. Steps of other stages are left out, because the image has no layers of theirs.
 * @param epoch takes the place of the times of the steps, in ms, so that equal builds give equal images.
 */
export function inlineCache(schedule: Schedule, diffIds: readonly Digest[], epoch: number | undefined): string {
  const indexes = new Map(chainOf(diffIds).map((layer, index) => [layer, index]));
  const records = schedule.steps.flatMap((step) => {
    const { content, isImage } = step.operation;
    const { layer: top, key, createdAt } = schedule.resultOf(step);
    const layer = top === undefined ? undefined : indexes.get(top);
    const isKept = content !== undefined && isImage !== true && layer !== undefined;
    return isKept ? [{ key, layer, createdAt: epoch ?? createdAt }] : [];
  });
  records.sort((a, b) => a.layer - b.layer || (a.key < b.key ? -1 : 1));
  return writeCacheDocument({ layers: [], records }).toString('base64');
}
