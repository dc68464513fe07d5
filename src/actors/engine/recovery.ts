/** Start-up: what the disk remembers is brought together with what the supervisor still runs. */
import { setTimeout as delay } from 'node:timers/promises';
import type { Logger } from '../../ports/logger.js';
import type { NetworkDriver } from '../../ports/network.js';
import type { LayerStore } from '../../ports/storage.js';
import type { TaskService } from '../../ports/supervisor.js';
import type { ContainerInput } from '../container/container.context.js';
import type { ContainerDirectory } from '../container/directory.js';
import { taskExit } from '../kit/task-exit.js';
import type { LoadedRecords } from '../container/records.js';
import { reconcile } from '../container/life/reconcile.js';
import type { ContainerIoRegistry } from '../container/streams/container-io.js';
import { removeStaleStreams, removeStreams } from '../container/streams/stream-files.js';
import { wantsStartAtBoot } from '../container/life/restart-policy.js';

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
  readonly network: Pick<NetworkDriver, 'sandboxIds' | 'removeSandbox' | 'settle'>;
}

/**
 * Gives every container its actor, removes what belongs to no container, and reports both. Restart policies start their
 * containers later.
 */
export async function recoverContainers({
  log,
  loaded,
  containers,
  ios,
  tasks,
  layers,
  ioRoot,
  network,
}: RecoveryDeps): Promise<void> {
  const { records: found, removed, damaged } = loaded;
  const running = await tasks.list();
  if (removed.length > 0)
    log.warn({ containers: removed }, 'removed what a crash left of containers that were being created or removed');
  for (const { id, reason } of damaged)
    log.error({ container: id, reason }, 'container record cannot be read; the container is left alone');
  const taskById = new Map(running.map((task) => [task.id, task]));
  const now = new Date();
  const inputs = found.map((record) => reconcile(record, taskById.get(record.id), now));
  const known = new Set([...found.map(({ id }) => id), ...damaged.map(({ id }) => id)]);
  const idle = new Set(inputs.flatMap(({ phase, record }) => (phase === 'idle' ? [record.id] : [])));
  await recoverOutput(inputs, ios, log);
  // Those of containers that have just ended go when the last output is logged.
  const ended = inputs.flatMap(({ phase, record }) => (phase === 'exited' ? [record.id] : []));
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
      .map(async ({ id }) => {
        log.warn({ container: id }, 'ending a task that belongs to no container');
        await endTask(tasks, id).catch((error: unknown) =>
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
  if (found.length > 0) log.info({ containers: found.length, running: running.length }, 'containers recovered');
  for (const record of found) {
    if (!idle.has(record.id) || !wantsStartAtBoot(record)) continue;
    containers
      .start(record.id)
      .catch((error: unknown) =>
        log.error({ err: error, container: record.id }, 'restart policy could not start the container'),
      );
  }
}

/** Opens the last output of containers that have ended meanwhile. It is logged before their tasks and FIFOs go. */
async function recoverOutput(inputs: readonly ContainerInput[], ios: ContainerIoRegistry, log: Logger): Promise<void> {
  const ended = inputs.flatMap(({ phase, record }) => (phase === 'exited' ? [record] : []));
  await Promise.all(
    ended.map((record) =>
      ios
        .get(record.id)
        .recover(record)
        .catch((error: unknown) =>
          log.error({ err: error, container: record.id }, 'the last output of a container is not logged'),
        ),
    ),
  );
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
