/** Takes over a task that survived the daemon or its actor. */
import { internal, isEngineError } from '../../../errors/engine-error.js';
import type { TaskInfo } from '../../../ports/supervisor.js';
import { TASK_GONE } from '../container.effects.types.js';
import { withState, type ContainerRecord } from '../container.record.js';
import type { ContainerDeps } from '../deps.js';
import { VolumeUse } from '../mounts/volume-use.js';
import { adoptNetworks } from '../network/networks.js';
import type { EffectTools } from './tools.js';

/** Takes over a running task with its networks, mounts and streams; where these are in place it only looks. */
export async function adoptContainer(
  { deps, ios }: EffectTools,
  { record: found, isInPlace }: { readonly record: ContainerRecord; readonly isInPlace: boolean },
): Promise<ContainerRecord> {
  if (isInPlace) return seen(found, await taskOf(deps, found.id, false));
  // This comes first: networks that are not taken over are removed, whatever else fails.
  const record = await adoptNetworks(deps, found);
  const task = await taskOf(deps, record.id, true).catch(async (error: unknown) => {
    if (isEngineError(error) && error.code === TASK_GONE) await ios.get(record.id).recover(record);
    throw error;
  });
  await deps.layers.mount(record.id);
  await new VolumeUse(deps, record).adopt();
  // A shim that does not answer tells nothing of the pipes.
  await ios.get(record.id).reopen(record, task.status === 'unknown' ? undefined : task.stdio);
  return seen(record, task);
}

/** Returns the task of a container that should have one. @throws EngineError with the code TASK_GONE. */
async function taskOf({ tasks }: ContainerDeps, id: string, mayBeUnknown: boolean): Promise<TaskInfo> {
  const task = await tasks.get(id, mayBeUnknown);
  if (!task || task.status === 'stopped') throw internal(`task ${id} is gone`, { code: TASK_GONE });
  return task;
}

function seen(record: ContainerRecord, { status, pid }: TaskInfo): ContainerRecord {
  // The shim does not answer, so the container counts as it did before.
  if (status === 'unknown') return withState(record, { pid: pid || record.state.pid });
  return withState(record, { status: status === 'paused' || status === 'pausing' ? 'paused' : 'running', pid });
}
