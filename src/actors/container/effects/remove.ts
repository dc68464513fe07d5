/** Removes a container with all that belongs to it. */
import type { Pace } from '../../kit/pace.js';
import type { RemoveInput } from '../container.effects.types.js';
import { removeAnonymousVolumes } from '../mounts/mounts.js';
import { removeRoot } from '../mounts/root-place.js';
import { removeStreams } from '../streams/stream-files.js';
import { logFailures, type EffectTools } from './tools.js';

/** Deletes everything of a container; the record goes first, so that a crash cannot bring half of it back. */
export async function removeContainer(
  { deps, ios }: EffectTools,
  { record, options }: RemoveInput,
  pace: Pace,
): Promise<void> {
  await deps.records.retire(record.id, options.volumes);
  const results = await Promise.allSettled([
    removeRoot(deps, record.id),
    pace.unlimited(deps.layers.removeWritable(record.id)),
    deps.releaseHolds(record.id),
    ios.remove(record.id).then(() => removeStreams(deps.ioRoot, record.id)),
    options.volumes ? pace.unlimited(removeAnonymousVolumes(deps, record)) : undefined,
  ]);
  logFailures(deps, record.id, 'removing a container', results);
}
