/** A new container gets its directory, its writable layer and its mounts, and is written to disk. */
import type { Pace } from '../../kit/pace.js';
import type { ContainerRecord } from '../container.record.js';
import { allDone, Undo } from '../life/undo.js';
import { pinVolumes, realizeMounts } from '../mounts/mounts.js';
import type { EffectTools } from './tools.js';

/** Makes everything that a container has before its first start; a failure takes all of it back. */
export async function createContainer(
  { deps }: EffectTools,
  record: ContainerRecord,
  signal: AbortSignal,
  pace: Pace,
): Promise<ContainerRecord> {
  const { layers, records } = deps;
  const undo = new Undo(deps.log);
  const pins = pinVolumes(deps);
  try {
    undo.add('container directory', () => records.remove(record.id));
    undo.add('writable layer', () => layers.removeWritable(record.id));
    await allDone([
      records.createDir(record.id),
      pace.unlimited(layers.createWritable(record.id, record.topLayer, record.hostConfig.StorageOpt)),
    ]);
    const made = await pace.unlimited(realizeMounts(deps, record, undo, pins));
    signal.throwIfAborted();
    await records.save(made);
    return made;
  } catch (error) {
    await undo.run();
    throw error;
  } finally {
    pins.release();
  }
}
