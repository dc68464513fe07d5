/** The container machine's effects over the drivers. */
import { setTimeout as sleep } from 'node:timers/promises';
import { conflict, internal, isEngineError } from '../../errors/engine-error.js';
import { ownsSandbox } from '../../runtime/namespaces.js';
import { rootOwner } from '../../sys/users/id-maps.js';
import type { ExitStatus, TaskInfo } from '../../ports/supervisor.js';
import { TASK_GONE, type ContainerEffects, type StopInput } from './container.effects.types.js';
import { type Pace, unlessAborted } from '../kit/pace.js';
import { linkedContainers, linkEnvironment } from './network/legacy-links.js';
import type { ContainerIoRegistry } from './streams/container-io.js';
import { thaw, unpause, whileRunning } from './life/ended-task.js';
import { withState, type ContainerRecord } from './container.record.js';
import type { ContainerDeps } from './deps.js';
import { effectiveHostConfig } from './create/effective-host-config.js';
import { pinVolumes, realizeMounts, removeAnonymousVolumes } from './mounts/mounts.js';
import { adoptNetworks, joinNetworks, leaveNetworks, rewire } from './network/networks.js';
import { closeSharedMemory, openSharedMemory, sharedMemoryPath } from './mounts/shared-memory.js';
import { UNSEEN_EXIT_CODE } from './life/unseen-exit.js';
import { removeStreams } from './streams/stream-files.js';
import { startError } from './life/start-error.js';
import { SIGKILL } from '../../text/signals.js';
import { now } from './streams/timestamps.js';
import { allDone, Undo } from './life/undo.js';
import { sharedUserns, usernsMaps } from './mounts/userns.js';
import { VolumeUse } from './mounts/volume-use.js';

/** How long output of a dead container may take to arrive: something outside its pid namespace holds its pipe. */
const DRAIN_LIMIT_MS = 5000;
/** How long an exit may take after SIGKILL before the stop is reported as failed. */
const KILL_LIMIT_MS = 10_000;
const MAX_TIMER_MS = 2 ** 31 - 1;
const PAUSE_TRIES = 3;

export function createContainerEffects(
  deps: ContainerDeps,
  ios: ContainerIoRegistry,
  emitKill: (record: ContainerRecord, signal: number) => void,
): ContainerEffects {
  const { layers, network, tasks, records } = deps;

  async function create(record: ContainerRecord, signal: AbortSignal, pace: Pace): Promise<ContainerRecord> {
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

  async function start(before: ContainerRecord, signal: AbortSignal, pace: Pace): Promise<ContainerRecord> {
    const undo = new Undo(deps.log);
    const id = before.id;
    const volumes = new VolumeUse(deps, before);
    const userns = usernsMaps(deps, before);
    try {
      const starting = withState(before, { status: 'starting', startedAt: now(), error: '', oomKilled: false });
      const saved = records.save(starting);
      // Marked as handled: its failure is thrown where it is awaited below.
      saved.catch(() => undefined);
      undo.add('volumes', () => volumes.close());
      undo.add('shared memory', () => closeSharedMemory(deps, starting));
      const [rootfs, netnsPath, io, files, mounts] = await allDone([
        mountRoot(id, undo),
        sandbox(starting, undo),
        ios.get(id).open(starting, undo),
        deps.writeFiles(starting),
        pace.unlimited(volumes.open()),
        openSharedMemory(deps, starting),
      ]);
      const { spec } = await deps.specs.build({
        id,
        name: starting.name.slice(1),
        argv: [starting.path, ...starting.args],
        config: {
          ...starting.config,
          Env: [
            ...linkEnvironment(
              starting,
              linkedContainers(starting, (other) => deps.find(other)),
            ),
            ...(starting.config.Env ?? []),
          ],
        },
        hostConfig: effectiveHostConfig(starting),
        rootfs,
        netnsPath,
        files,
        mounts,
        cgroupsPath: deps.cgroupsPathFor(starting),
        ...optional('initPath', deps.initPathFor(starting)),
        userns,
        ...sharedNamespaces(starting),
      });
      signal.throwIfAborted();
      const creating = tasks.create({
        id,
        spec,
        runtime: deps.runtimeFor(starting),
        stdio: io.paths,
        labels: {},
        ...optional('ioOwner', userns && rootOwner(userns)),
      });
      undo.add('task', () => tasks.delete(id));
      // While the runtime works. After a crash, what the container got is known of whatever was started.
      const join = (): Promise<ContainerRecord> => deps.counted('allocate', () => joinNetworks(deps, starting, undo));
      const joining = (
        userns && netnsPath === undefined ? creating.then(({ pid }) => keepSandbox(id, pid, undo)).then(join) : join()
      ).then(async (joined) => {
        if (Object.keys(joined.networks).length > 0) await Promise.all([deps.writeFiles(joined), records.save(joined)]);
        return joined;
      });
      const [{ pid }, attached] = await allDone([creating, joining]);
      await volumes.freePlaces();
      await io.started();
      await saved;
      signal.throwIfAborted();
      await tasks.start(id);
      signal.throwIfAborted();
      const running = withState(
        { ...attached, mounts: volumes.points, logPath: io.logPath },
        { status: 'running', pid, exitCode: 0 },
      );
      void records
        .save(running)
        .catch((error: unknown) => deps.log.error({ err: error, container: id }, 'record not saved'));
      return running;
    } catch (error) {
      await undo.run();
      throw startError(error);
    }
  }

  /** Namespaces of other containers, by way of their init process; with the IPC namespace goes its /dev/shm. */
  function sharedNamespaces(record: ContainerRecord): {
    joins: Partial<Record<'ipc' | 'pid' | 'user', string>>;
    shmPath?: string;
  } {
    const { IpcMode, PidMode } = record.hostConfig;
    const joins: Partial<Record<'ipc' | 'pid' | 'user', string>> = optional(
      'user',
      sharedUserns(deps, record, runningDonor),
    );
    for (const [kind, mode] of [
      ['ipc', IpcMode],
      ['pid', PidMode],
    ] as const) {
      if (!mode.startsWith('container:')) continue;
      joins[kind] = `/proc/${runningDonor(mode, kind.toUpperCase()).state.pid}/ns/${kind}`;
    }
    return {
      joins,
      ...optional(
        'shmPath',
        sharedMemoryPath(deps, record, (mode) => runningDonor(mode, 'IPC')),
      ),
    };
  }

  /** The container whose namespace another one joins. @throws EngineError conflict unless it runs. */
  function runningDonor(mode: string, kind: string): ContainerRecord {
    const id = mode.slice('container:'.length);
    const donor = deps.find(id);
    if (!donor || donor.state.pid === 0) throw conflict(`cannot join ${kind} of a non running container: ${id}`);
    return donor;
  }

  async function mountRoot(id: string, undo: Undo): Promise<string> {
    const rootfs = await layers.mount(id);
    undo.add('root filesystem', () => layers.unmount(id));
    return rootfs;
  }

  /** Where a running container's network is, who may have it from another one; undefined for the host's. */
  function sandboxOf(record: ContainerRecord): string | undefined {
    if (ownsSandbox(record)) return network.sandboxPath(record.id);
    const { NetworkMode: mode } = record.hostConfig;
    return mode === 'host' ? undefined : sandboxOf(runningDonor(mode, 'network'));
  }

  async function sandbox(record: ContainerRecord, undo: Undo): Promise<string | undefined> {
    if (!ownsSandbox(record)) return sandboxOf(record);
    // It must belong to the user namespace, which is the runtime's to make.
    if (usernsMaps(deps, record)) return undefined;
    const path = await network.createSandbox(record.id);
    undo.add('network namespace', () => network.removeSandbox(record.id));
    return path;
  }

  /** Takes over the network namespace that the runtime has made. */
  async function keepSandbox(id: string, pid: number, undo: Undo): Promise<void> {
    await network.createSandbox(id, pid);
    undo.add('network namespace', () => network.removeSandbox(id));
  }

  async function adopt({
    record: found,
    isInPlace,
  }: {
    record: ContainerRecord;
    isInPlace: boolean;
  }): Promise<ContainerRecord> {
    if (isInPlace) return seen(found, await taskOf(found.id));
    // First: what is not taken over of networks is taken away, whatever else fails.
    const record = await adoptNetworks(deps, found);
    const task = await taskOf(record.id);
    await layers.mount(record.id);
    await new VolumeUse(deps, record).adopt();
    await ios.get(record.id).reopen(record, task.stdio);
    return seen(record, task);
  }

  /** Returns the task of a container that should have one. */
  async function taskOf(id: string): Promise<TaskInfo> {
    const task = await tasks.get(id);
    if (!task || task.status === 'stopped') throw internal(`task ${id} is gone`, { code: TASK_GONE });
    return task;
  }

  function seen(record: ContainerRecord, { status, pid }: TaskInfo): ContainerRecord {
    return withState(record, { status: status === 'paused' ? 'paused' : 'running', pid });
  }

  async function stop({ record, signal, killAtMs }: StopInput, aborted: AbortSignal, pace: Pace): Promise<ExitStatus> {
    if (!(await deliver(record, signal))) return untoldExit(record, aborted);
    if (record.state.status === 'paused') await thaw(tasks, record.id);
    if (signal !== SIGKILL) {
      // A timer holds less than what clients may ask for.
      for (let leftMs = killAtMs - performance.now(); leftMs > 0; leftMs = killAtMs - performance.now()) {
        await pace.unlimited(sleep(Math.min(leftMs, MAX_TIMER_MS), undefined, { signal: aborted, ref: false }));
      }
      await deliver(record, SIGKILL);
    }
    return untoldExit(record, aborted);
  }

  /** The exit event is expected soon and ends the wait. If it does not come, the supervisor is asked. */
  async function untoldExit(record: ContainerRecord, aborted: AbortSignal): Promise<ExitStatus> {
    await sleep(KILL_LIMIT_MS, undefined, { signal: aborted, ref: false });
    const task = await tasks.get(record.id);
    if (!task || task.status === 'stopped') return task?.exit ?? { exitCode: UNSEEN_EXIT_CODE, exitedAt: new Date() };
    throw internal(`cannot stop container: ${record.id}: tried to kill container, but did not receive an exit event`);
  }

  /** False when there was nothing left to signal: the exit is on its way. */
  async function deliver(record: ContainerRecord, signal: number): Promise<boolean> {
    emitKill(record, signal);
    try {
      await tasks.kill(record.id, signal);
      return true;
    } catch (error) {
      if (isEngineError(error, 'not-found')) return false;
      throw error;
    }
  }

  /** Runtimes give up freezing cgroup v1 when the host is busy; another try is all it takes. */
  async function pause(id: string): Promise<void> {
    for (let triesLeft = PAUSE_TRIES; ;) {
      try {
        return await tasks.pause(id);
      } catch (error) {
        if (--triesLeft === 0 || (await tasks.get(id))?.status !== 'running') throw error;
      }
    }
  }

  /** This also removes FIFOs of execs that a killed shim left behind. */
  async function freeStreams(id: string): Promise<void> {
    await ios.get(id).close();
    await removeStreams(deps.ioRoot, id);
  }

  async function release(record: ContainerRecord): Promise<ContainerRecord> {
    const released: ContainerRecord = {
      ...record,
      ports: [],
      networks: Object.fromEntries(Object.entries(record.networks).map(([name, { request }]) => [name, { request }])),
    };
    // The exit status must be durable before the supervisor forgets it; addresses may go meanwhile.
    const networkGone = deps.counted('release', () => leaveNetworks(deps, record));
    networkGone.catch(() => undefined);
    await records
      .save(released, true)
      .catch((error: unknown) =>
        deps.log.error({ err: error, container: record.id }, 'the end of a container is not on disk'),
      );
    const results = await Promise.allSettled([
      networkGone,
      tasks.delete(record.id).then(() => freeStreams(record.id)),
      layers.unmount(record.id),
      new VolumeUse(deps, record).close(),
      closeSharedMemory(deps, record),
    ]);
    for (const result of results) {
      if (result.status === 'rejected')
        deps.log.error({ err: result.reason, container: record.id }, 'releasing a stopped container');
    }
    return released;
  }

  return {
    create,
    start,
    adopt,
    stop,
    pause: ({ id }, signal) =>
      whileRunning(
        tasks,
        id,
        deps.pauseGate.pause(id, () => unlessAborted(signal, pause(id))),
      ),
    unpause: ({ id }) => unpause(tasks, id),
    async drain({ id }) {
      await Promise.all([ios.get(id).drained(DRAIN_LIMIT_MS), records.written(id)]);
    },
    release,
    rewire: ({ record, change }) => rewire(deps, record, change),
    async remove({ record, options }, pace) {
      await records.remove(record.id);
      const results = await Promise.allSettled([
        pace.unlimited(layers.removeWritable(record.id)),
        deps.releaseLayers(record.id),
        ios.remove(record.id).then(() => removeStreams(deps.ioRoot, record.id)),
        options.volumes ? pace.unlimited(removeAnonymousVolumes(deps, record)) : undefined,
      ]);
      for (const result of results) {
        if (result.status === 'rejected')
          deps.log.error({ err: result.reason, container: record.id }, 'removing a container');
      }
    },
    save: (record) => records.save(record),
  };
}

function optional<K extends string, V>(key: K, value: V | undefined): { [P in K]?: V } {
  return value === undefined ? {} : ({ [key]: value } as { [P in K]?: V });
}
