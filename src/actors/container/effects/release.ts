/** The end of a run of a container: its last output is read, then all that it held is given back. */
import type { ReleaseInput } from '../container.effects.types.js';
import type { ContainerRecord } from '../container.record.js';
import type { ContainerDeps } from '../deps.js';
import { toldKey, type ToldEvents, unrecordedJoins } from '../life/told.js';
import { removeRoot } from '../mounts/root-place.js';
import { closeSharedMemory } from '../mounts/shared-memory.js';
import { VolumeUse } from '../mounts/volume-use.js';
import { leaveNetworks } from '../network/networks.js';
import type { ContainerIo } from '../streams/container-io.js';
import { removeStreams } from '../streams/stream-files.js';
import { logFailures, type EffectTools } from './tools.js';

/**
 * The output of a dead container may take this long to end, because a process outside its pid namespace may hold the
 * pipe. The shim writes into the FIFOs until its task is deleted, and then they end.
 */
const DRAIN_LIMIT_MS = 5000;

/** Waits until the output of a dead task is logged and the record that notes its stop is on disk. */
export async function drainContainer({ deps, ios }: EffectTools, { id }: ContainerRecord): Promise<void> {
  await Promise.all([ios.get(id).drained(DRAIN_LIMIT_MS), deps.records.written(id)]);
}

/**
 * Writes the record of the exit, then frees networks, task and mounts; a part that fails does not keep the others. The
 * task is often still being deleted when the others are done.
 */
export async function releaseContainer(tools: EffectTools, { record, told }: ReleaseInput): Promise<ContainerRecord> {
  const { deps, departures } = tools;
  const telling = { ...deps, emit: tellUntold(deps, told) };
  const released: ContainerRecord = {
    ...record,
    ports: [],
    networks: Object.fromEntries(Object.entries(record.networks).map(([name, { request }]) => [name, { request }])),
  };
  const results = await Promise.allSettled([
    saveEnd(deps, released).then(() => departures.begin(record.id, taskGone(tools, record.id))),
    deps.counted('release', () => leaveNetworks(telling, record)),
    deps.layers.unmount(record.id),
    new VolumeUse(telling, record).close(),
    closeSharedMemory(deps, record),
    removeRoot(deps, record.id),
  ]);
  logFailures(deps, record.id, 'releasing a stopped container', results);
  for (const [network, attributes] of unrecordedJoins(told, record))
    deps.emit('network', 'disconnect', network, attributes);
  return released;
}

/** Deletes the task of a dead container, then frees its streams. A failure is logged. */
async function taskGone(tools: EffectTools, id: string): Promise<void> {
  const { deps, ios } = tools;
  const io = ios.get(id);
  const results = await Promise.allSettled([deps.tasks.delete(id).then(() => freeStreams(deps, io, id))]);
  logFailures(deps, id, 'deleting the task of a stopped container', results);
}

/**
 * Resolves when the exit status survives a kill of the daemon, which the supervisor may forget then: with its machine
 * the supervisor forgets it anyway. It becomes durable a moment later, unless the container is gone by then.
 */
async function saveEnd({ records, log }: ContainerDeps, released: ContainerRecord): Promise<void> {
  await records
    .saveForRunFirst(released, true)
    .catch(() => records.save(released, true))
    .catch((error: unknown) =>
      log.error({ err: error, container: released.id }, 'the end of a container is not on disk'),
    );
}

/** Tells of events, but not of those that an earlier daemon told. */
function tellUntold(deps: ContainerDeps, told: ToldEvents): ContainerDeps['emit'] {
  return (type, action, id, attributes) => {
    if (!told.has(toldKey(type, action, id))) deps.emit(type, action, id, attributes);
  };
}

/** Closes the streams of the run, and removes FIFOs of execs that a killed shim left behind. */
async function freeStreams(deps: ContainerDeps, io: ContainerIo, id: string): Promise<void> {
  await io.drained(DRAIN_LIMIT_MS);
  await io.close();
  await removeStreams(deps.ioRoot, id);
}
