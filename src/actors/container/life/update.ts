/** POST /containers/{id}/update changes limits and restart policy, at once when the container runs. */
import { conflict, EngineError, isEngineError } from '../../../errors/engine-error.js';
import type { HostConfig } from '../../../ports/container.js';
import type { TaskService } from '../../../ports/supervisor.js';
import { setBlockIo } from '../../../runtime/block-io.js';
import type { OciResources } from '../../../runtime/oci-types.js';
import type { ContainerRecord } from '../container.record.js';
import type { ContainerDirectory } from '../directory.js';
import { whileRunning } from './ended-task.js';
import { isLive } from '../network/network-change.js';

export interface UpdateDeps {
  readonly containers: ContainerDirectory;
  readonly tasks: TaskService;
  /** Checks merged limits and returns them as OCI `LinuxResources`, with warnings. */
  resources(host: HostConfig): Promise<{ readonly linux: OciResources; readonly warnings: readonly string[] }>;
  /** Checks a restart policy. @throws EngineError invalid. */
  checkRestartPolicy(host: HostConfig): void;
}

/**
 * Changes the settings that `change` names. Returns the new record and warnings. Nothing has changed when it throws.
 */
export async function updateContainer(
  deps: UpdateDeps,
  record: ContainerRecord,
  change: Partial<HostConfig>,
): Promise<{ updated: ContainerRecord; warnings: readonly string[] }> {
  const { containers, tasks } = deps;
  const hostConfig: HostConfig = { ...record.hostConfig, ...change };
  try {
    checkConflicts(record.hostConfig, change);
  } catch (error) {
    throw notUpdated(record, error);
  }
  deps.checkRestartPolicy(hostConfig);
  const { linux, warnings } = await deps.resources(hostConfig);
  if (isLive(record))
    await apply(tasks, record, linux).catch((error: unknown) => {
      throw notUpdated(record, error);
    });
  const amend = (current: ContainerRecord): ContainerRecord => ({
    ...current,
    hostConfig: { ...current.hostConfig, ...change },
  });
  const updated = await containers.amend(record.id, { amend }).catch(async (error: unknown) => {
    // If the change cannot be written to disk, the kernel must not keep it either. If the container has ended, there
    // is nothing to put back.
    if (isLive(record))
      await apply(tasks, record, (await deps.resources(record.hostConfig)).linux).catch(() => undefined);
    throw error;
  });
  // The container was started meanwhile, with the old limits.
  if (isLive(updated) && updated.state.startedAt !== record.state.startedAt) await apply(tasks, updated, linux);
  return { updated, warnings };
}

function notUpdated({ id }: ContainerRecord, error: unknown): unknown {
  if (!isEngineError(error)) return error;
  return new EngineError(error.kind, `Cannot update container ${id}: ${error.message}`, { cause: error });
}

function apply(tasks: TaskService, { id, state: { pid } }: ContainerRecord, linux: OciResources): Promise<void> {
  const both = async (): Promise<void> => {
    // A limit that the kernel does not have is refused before anything has changed.
    await setBlockIo({ id, pid }, linux.blockIO ?? {});
    await tasks.update(id, { ...linux });
    // The runtime has set these limits back to those that the container was made with.
    await setBlockIo({ id, pid }, linux.blockIO ?? {});
  };
  return whileRunning(tasks, id, both());
}

/** Refuses changes that contradict the settings that stay. */
function checkConflicts(current: HostConfig, change: Partial<HostConfig>): void {
  const isSet = (value: number | undefined): boolean => (value ?? 0) > 0;
  if (current.AutoRemove && change.RestartPolicy && change.RestartPolicy.Name !== 'no') {
    throw conflict('Restart policy cannot be updated because AutoRemove is enabled for the container');
  }
  if (
    change.Memory !== undefined &&
    change.MemorySwap === undefined &&
    current.MemorySwap > 0 &&
    change.Memory > current.MemorySwap
  ) {
    throw conflict(
      'Memory limit should be smaller than already set memoryswap limit, update the memoryswap at the same time',
    );
  }
  for (const [key, name] of [
    ['CpuPeriod', 'CPU Period'],
    ['CpuQuota', 'CPU Quota'],
  ] as const) {
    if (isSet(change.NanoCpus) && isSet(current[key]))
      throw conflict(`Conflicting options: Nano CPUs cannot be updated as ${name} has already been set`);
    if (isSet(change[key]) && isSet(current.NanoCpus))
      throw conflict(`Conflicting options: ${name} cannot be updated as NanoCPUs has already been set`);
  }
}
