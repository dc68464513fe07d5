/** Start-up: what the disk remembers is brought together with what the supervisor still runs. */
import { setTimeout as delay } from 'node:timers/promises';
import type { Logger } from '../../ports/logger.js';
import type { EventLog } from '../../ports/events.js';
import type { NetworkDriver } from '../../ports/network.js';
import type { LayerStore } from '../../ports/storage.js';
import type { TaskInfo, TaskService } from '../../ports/supervisor.js';
import type { ContainerInput } from '../container/container.context.js';
import { tellUntoldNetworks } from '../container/network/networks.js';
import type { ContainerDeps } from '../container/deps.js';
import type { ContainerHooks } from '../container/container.effects.types.js';
import type { ContainerDirectory } from '../container/directory.js';
import { taskExit } from '../kit/task-exit.js';
import type { LoadedRecords } from '../container/records.js';
import type { ContainerRecord } from '../container/container.record.js';
import { isClearWithoutTask, reconcile, untoldBeginnings } from '../container/life/reconcile.js';
import type { ContainerIoRegistry } from '../container/streams/container-io.js';
import { removeStaleStreams, removeStreams } from '../container/streams/stream-files.js';
import { wantsStartAtBoot } from '../container/life/restart-policy.js';
import { isRemovalTold, readLastTold } from './told-events.js';

/** A process may take this time to die. */
const EXIT_MS = 10_000;

export interface RecoveryDeps {
  readonly log: Logger;
  readonly loaded: LoadedRecords;
  readonly containers: ContainerDirectory;
  readonly ios: ContainerIoRegistry;
  readonly tasks: TaskService;
  readonly layers: LayerStore;
  /** The FIFOs of containers are in this directory. */
  readonly ioRoot: string;
  readonly network: Pick<NetworkDriver, 'list' | 'sandboxIds' | 'removeSandbox' | 'settle'>;
  readonly events: EventLog;
  readonly emit: ContainerDeps['emit'];
  readonly hooks: Pick<ContainerHooks, 'emit' | 'forget'>;
  /** Removes the anonymous volumes of a container that nobody else uses; false: the next start tries it again. */
  readonly removeVolumes: (record: ContainerRecord) => Promise<boolean>;
  /** Removes those that were made for a container whose creation was cut short. */
  readonly removeNewVolumes: (draft: ContainerRecord) => Promise<boolean>;
}

/**
 * Gives every container its actor, removes what belongs to no container, and reports both. Restart policies start their
 * containers later.
 */
export async function recoverContainers(deps: RecoveryDeps): Promise<void> {
  const { log, containers, ios, tasks, layers, ioRoot, network } = deps;
  const { records: found, removed, damaged } = deps.loaded;
  // A shim that hangs must not keep the daemon from serving others: what it serves counts as it did before.
  const isClear = new Set(found.flatMap(({ id, state }) => (isClearWithoutTask(state.status) ? [id] : [])));
  const running = await tasks.list((id) => isClear.has(id));
  if (removed.length > 0)
    log.warn({ containers: removed }, 'removed what a crash left of containers that were being created or removed');
  for (const { id, reason } of damaged)
    log.error({ container: id, reason }, 'container record cannot be read; the container is left alone');
  const taskById = new Map(running.map((task) => [task.id, task]));
  const inputs = await reconcileAll(deps, taskById);
  const known = new Set([...found.map(({ id }) => id), ...damaged.map(({ id }) => id)]);
  const idle = new Set(inputs.flatMap(({ phase, record }) => (phase === 'idle' ? [record.id] : [])));
  await recoverOutput(inputs, ios, log);
  // Those of containers that have just ended go when the last output is logged.
  const ended = withLastOutput(inputs).map(({ id }) => id);
  await removeStaleStreams(ioRoot, new Set([...taskById.keys(), ...ended])).catch((error: unknown) =>
    log.error({ err: error }, 'what is left of the streams of containers is not removed'),
  );
  await containers.adopt(inputs);
  // A container whose record cannot be read may still run, and use addresses that no other container has claimed.
  if (damaged.length === 0)
    await network
      .settle()
      .catch((error: unknown) =>
        log.error({ err: error }, 'what containers that are gone had of networks is not removed'),
      );
  await Promise.all([
    ...running
      .filter(({ id }) => !known.has(id))
      .map(async ({ id, status }) => {
        // The daemon was killed between a removal's reply and the deletion of the dead task.
        const isDead = status === 'stopped';
        if (!isDead) log.warn({ container: id }, 'ending a task that belongs to no container');
        await (isDead ? tasks.delete(id) : endTask(tasks, id)).catch((error: unknown) =>
          log.error({ err: error, container: id }, 'task not deleted'),
        );
        await removeStreams(ioRoot, id);
      }),
    // The record says that a container does not run while its start is only just beginning. A crash may leave these
    // parts of such a start.
    ...network
      .sandboxIds()
      .filter((id) => !known.has(id) || idle.has(id))
      .map((id) => network.removeSandbox(id)),
    ...[...idle].map((id) => layers.unmount(id)),
    ...layers
      .writableIds()
      .filter((id) => !known.has(id))
      .map(async (id) => {
        log.warn({ container: id }, 'removing a writable layer that belongs to no container');
        await layers
          .removeWritable(id)
          .catch((error: unknown) => log.error({ err: error, container: id }, 'writable layer not removed'));
      }),
  ]);
  removeVolumes(deps);
  if (found.length > 0) log.info({ containers: found.length, running: running.length }, 'containers recovered');
  startAtBoot(inputs, containers, log);
}

/** Decides how each container begins, and tells what the last daemon did without telling it. */
async function reconcileAll(
  { loaded, events, hooks, ...networks }: RecoveryDeps,
  taskById: ReadonlyMap<string, TaskInfo>,
): Promise<ContainerInput[]> {
  const { records: found, retired, withVolumes } = loaded;
  const now = new Date();
  const told = await readLastTold(events, { found, retired }, taskById);
  for (const record of retired) {
    if (!isRemovalTold(record, told)) hooks.emit('destroy', record);
    if (!withVolumes.includes(record)) hooks.forget(record.id);
  }
  return found.map((record) => {
    const earlier = told.byContainer.get(record.id);
    const input = reconcile(record, taskById.get(record.id), now, earlier);
    if (earlier) tellUntoldNetworks(networks, record, earlier, told.sinceMs);
    for (const action of untoldBeginnings(input, earlier, told.sinceMs)) hooks.emit(action, input.record);
    return input;
  });
}

/**
 * Removes the volumes of creations and removals that were cut short while the start goes on, since a driver may take
 * minutes. What is kept of such a container stays until that is done, so that an end of the daemon does not forget it.
 */
function removeVolumes({ loaded, hooks, log, ...remove }: RecoveryDeps): void {
  const end = ({ id }: ContainerRecord, removal: Promise<boolean>): void =>
    void removal
      .then((isDone) => isDone && hooks.forget(id))
      .catch((error: unknown) => log.error({ err: error, container: id }, 'its anonymous volumes stay'));
  for (const record of loaded.withVolumes) end(record, remove.removeVolumes(record));
  for (const draft of loaded.drafts) end(draft, remove.removeNewVolumes(draft));
}

/** Starts the containers that rest but for their restart policy. */
function startAtBoot(inputs: readonly ContainerInput[], containers: ContainerDirectory, log: Logger): void {
  for (const { phase, record } of inputs) {
    // One that waits for its restart comes back by itself.
    const rests = phase === 'idle' || (phase === 'ended' && record.state.status === 'exited');
    if (!rests || !wantsStartAtBoot(record)) continue;
    containers
      .start(record.id)
      .catch((error: unknown) =>
        log.error({ err: error, container: record.id }, 'restart policy could not start the container'),
      );
  }
}

/** Opens the last output of containers that have ended meanwhile. It is logged before their tasks and FIFOs go. */
async function recoverOutput(inputs: readonly ContainerInput[], ios: ContainerIoRegistry, log: Logger): Promise<void> {
  await Promise.all(
    withLastOutput(inputs).map((record) =>
      ios
        .get(record.id)
        .recover(record)
        .catch((error: unknown) =>
          log.error({ err: error, container: record.id }, 'the last output of a container is not logged'),
        ),
    ),
  );
}

/** Returns the containers whose last run is not given up yet, so some of its output may be left. */
function withLastOutput(inputs: readonly ContainerInput[]): ContainerRecord[] {
  return inputs.flatMap(({ phase, record }) => (phase === 'exited' || phase === 'ended' ? [record] : []));
}

/** Kills a task and deletes it, which the supervisor does only when its process has ended. */
async function endTask(tasks: TaskService, id: string): Promise<void> {
  const exit = taskExit(tasks, id);
  const over = new AbortController();
  try {
    const isKilled = await tasks.kill(id, 9, { all: true }).then(
      () => true,
      () => false,
    );
    if (isKilled) await Promise.race([exit.code, delay(EXIT_MS, undefined, { signal: over.signal })]);
    await tasks.delete(id);
  } finally {
    over.abort();
    exit.forget();
  }
}
