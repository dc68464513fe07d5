/** A new container gets its directory, its writable layer and its mounts, and is written to disk. */
import type { Pace } from '../../kit/pace.js';
import type { ContainerRecord } from '../container.record.js';
import type { ContainerDeps } from '../deps.js';
import { ownIdCount } from '../../../runtime/userns-mode.js';
import { allDone, Undo } from '../life/undo.js';
import { newVolumes, pinVolumes, realizeMounts } from '../mounts/mounts.js';
import type { EffectTools } from './tools.js';

/** Makes everything that a container has before its first start; a failure takes all of it back. */
export async function createContainer(
  { deps }: EffectTools,
  record: ContainerRecord,
  signal: AbortSignal,
  pace: Pace,
): Promise<ContainerRecord> {
  const { layers, logs, records } = deps;
  const { Type, Config } = record.hostConfig.LogConfig;
  await logs.checkPlaces(Type, Config);
  const undo = new Undo(deps.log);
  const pins = pinVolumes(deps);
  try {
    undo.add('container directory', () => records.remove(record.id));
    undo.add('writable layer', () => layers.removeWritable(record.id));
    await allDone([records.createDir(record.id), pace.unlimited(createWritable(deps, record))]);
    // A volume with a name of the daemon's own would belong to nobody after a kill.
    const isDrafted = newVolumes(record).length > 0;
    if (isDrafted) await records.saveDraft(record);
    const made = await pace.unlimited(realizeMounts(deps, record, undo, pins));
    signal.throwIfAborted();
    await records.save(made);
    if (isDrafted) await records.removeDraft(record.id);
    return made;
  } catch (error) {
    await undo.run();
    throw error;
  } finally {
    pins.release();
  }
}

/**
 * Makes the writable layer, with the users of the container's own if it wants some, else with those of all. They are on
 * the disk with the layer before anything of the container uses them; its own are free again when it is gone.
 */
async function createWritable(
  { layers, ownUsers, givesOwnUsers, shownMaps }: ContainerDeps,
  { id, topLayer, hostConfig: { StorageOpt, UsernsMode } }: ContainerRecord,
): Promise<void> {
  const count = ownIdCount(UsernsMode, givesOwnUsers);
  if (count === undefined)
    return layers.createWritable(id, topLayer, StorageOpt, UsernsMode === 'host' ? undefined : shownMaps);
  const maps = await ownUsers.take(id, count);
  try {
    await layers.createWritable(id, topLayer, StorageOpt, maps);
  } finally {
    ownUsers.done(id);
  }
  // It shows now, rather than at the start, whether this host can do it.
  await layers.mount(id);
  await layers.unmount(id);
}
