/** Containers with all that belongs to their lives: execs, health checks, statistics. */
import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { ContainerIoRegistry } from '../actors/container/streams/container-io.js';
import { createContainerEffects } from '../actors/container/container.effects.js';
import { createContainerMachine } from '../actors/container/container.machine.js';
import { type ContainerRecord, isRunning } from '../actors/container/container.record.js';
import type { ContainerDeps } from '../actors/container/deps.js';
import { ContainerDirectory } from '../actors/container/directory.js';
import { draftContainer } from '../actors/container/create/draft.js';
import { effectiveHostConfig } from '../actors/container/create/effective-host-config.js';
import { writeContainerFiles } from '../actors/container/mounts/files.js';
import { openLinks } from '../actors/container/network/legacy-links.js';
import { createContainerHooks } from '../actors/container/life/hooks.js';
import { PauseGate } from '../actors/container/life/pause-gate.js';
import { ContainerServices } from '../actors/container/services.js';
import { InFlight } from '../actors/kit/in-flight.js';
import type { ContainerEffects } from '../actors/container/container.effects.types.js';
import { ExecDirectory } from '../actors/exec/directory.js';
import { HealthChecks } from '../actors/health/directory.js';
import { runProbe } from '../actors/health/probe.js';
import { StatsFeeds } from '../actors/stats/feeds.js';
import { invalid } from '../errors/engine-error.js';
import { isDigest } from '../images/reference.js';
import { cgroupsPathFor } from '../runtime/cgroup-path.js';
import { buildResources } from '../runtime/resources.js';
import { applyHostLimits } from '../runtime/validate-resources.js';
import { checkRestartPolicy, validateContainer } from '../runtime/validate.js';
import { createStatsReader } from '../stats/reader.js';
import { parseCgroupMounts } from '../sys/process/cgroup-mounts.js';
import { rootOwner } from '../sys/users/id-maps.js';
import type { Base } from './base.js';
import type { Drivers } from './drivers.js';
import { containerDefaults } from './settings.js';

/** After a crash the next actor waits at most this long for an effect that hangs. */
const EFFECTS_LIMIT_MS = 60_000;

export type Containers = Awaited<ReturnType<typeof composeContainers>>;

export async function composeContainers(
  { live, execRoot, idMaps, facts, host, settings, log, replies }: Base,
  { layers, images, network, logs, records, volumes, tasks, specs, stdio, emit, usage, metrics }: Drivers,
) {
  const config = live.fixed;
  const pauseGate = new PauseGate();
  const deps: ContainerDeps = {
    counted: (action, run) => metrics.counted(action, run),
    log,
    records,
    pauseGate,
    images,
    layers,
    network,
    logs,
    tasks,
    stdio,
    specs,
    volumes,
    volumeUsers: (name) =>
      containers
        .list()
        .flatMap(({ id, mounts }) =>
          mounts.some((mount) => mount.Type === 'volume' && mount.Name === name) ? [id] : [],
        ),
    emit,
    idMaps,
    ioRoot: join(execRoot, 'io'),
    placesRoot: join(execRoot, 'places'),
    shmRoot: join(execRoot, 'shm'),
    find: (id) => containers.get(id),
    releaseLayers: (id) => containers.releaseLayers(id),
    runtimeFor: ({ hostConfig }) => settings.runtimeChoice(hostConfig.Runtime),
    cgroupsPathFor: ({ id, hostConfig }) => {
      const driver = settings.runtimeChoice(hostConfig.Runtime).systemdCgroup ? 'systemd' : settings.cgroupDriver;
      const named = hostConfig.CgroupParent || config.cgroupParent;
      // Runtimes may have different cgroup drivers; the systemd driver wants slices as parents.
      const parent = driver === settings.cgroupDriver || named.endsWith('.slice') ? named : '';
      return cgroupsPathFor({ driver, parent, id, version: facts.cgroup.version, ownCgroup: facts.cgroup.own });
    },
    initPathFor: (record) => (effectiveHostConfig(record).Init ? installedInit(settings.initPath) : undefined),
    writeFiles: (record) =>
      writeContainerFiles(
        {
          network,
          find: (id) => containers.get(id),
          dir: (id) => records.dir(id),
          owner: rootOwner(idMaps),
          settings: () => ({
            dns: config.dns,
            dnsSearch: config.dnsSearch,
            dnsOptions: config.dnsOpts,
            hostGatewayIps: hostGatewayIps(),
          }),
        },
        record,
      ),
  };
  const hostGatewayIps = (): readonly string[] =>
    config.hostGatewayIps.length > 0 ? config.hostGatewayIps : network.hostAddresses();
  const ios = new ContainerIoRegistry();
  ios.connect(deps);
  // A container that is linked to one with a new address finds the new address there.
  const refreshLinks = (record: ContainerRecord): void => {
    const open = (linked: ContainerRecord): void =>
      void openLinks(network, linked, (id) => deps.find(id)).catch((error: unknown) =>
        log.error({ err: error, container: linked.id }, 'links are not open'),
      );
    open(record);
    for (const other of containers.list()) {
      if (!other.links?.some((link) => link.id === record.id) || !isRunning(other)) continue;
      open(other);
      deps
        .writeFiles(other)
        .catch((error: unknown) => log.error({ err: error, container: other.id }, 'hosts file not written'));
    }
  };
  const hooks = createContainerHooks(deps, ios, (id, record) => {
    containers.publish(id, record);
    if (record?.state.status === 'running') refreshLinks(record);
    healthChecks.observe(id, record);
    if (record && isDigest(record.image)) images.used(record.image);
    if (record) return;
    execs.removeOf(id);
    statsFeeds.removed(id);
  });
  const inFlight = new InFlight();
  const effects = createContainerEffects(deps, ios, (record, signal) =>
    hooks.emit('kill', record, { signal: String(signal) }),
  );
  const machine = createContainerMachine(
    notedEffects(effects, inFlight, {
      started: (seconds) => metrics.containerStarted(seconds),
      released: ({ id }) => execs.endOf(id),
    }),
    hooks,
    replies,
  );
  const containers = new ContainerDirectory(
    {
      replies,
      log,
      images,
      layers,
      network,
      settled: async (id) => {
        await inFlight.settled(id, EFFECTS_LIMIT_MS);
        await records.written(id);
      },
      saved: (id) => records.read(id),
      task: (id) => tasks.get(id),
      abandon: (record) => effects.remove({ record, options: { force: true, volumes: true } }),
      draft: (request, id, name) =>
        draftContainer(
          {
            images,
            network,
            logs,
            defaults: () => containerDefaults(live.whole, host.hostname, facts),
            validate: (given, hostConfig) =>
              validateContainer(given, hostConfig, facts, {
                cgroupDriver: settings.cgroupDriver,
                remapsUsers: idMaps !== undefined,
              }),
            find: (reference) => containers.find(reference),
          },
          request,
          id,
          name,
        ),
    },
    machine,
  );
  const services = new ContainerServices({
    containers,
    layers,
    tasks,
    writeFiles: (record) => deps.writeFiles(record),
    emit: (action, record, attributes) => hooks.emit(action, record, attributes),
    diskBytes: (id) => usage.containerBytes(id),
    emitPrune: (reclaimedBytes) => emit('container', 'prune', '', { reclaimed: String(reclaimedBytes) }),
    checkRestartPolicy,
    resources: async (limits) => {
      const { hostConfig, warnings } = applyHostLimits(limits, facts, { update: true });
      return { linux: await buildResources(hostConfig), warnings };
    },
  });
  const execs = new ExecDirectory({
    log,
    replies,
    tasks,
    pauseGate,
    stdio,
    ioRoot: join(execRoot, 'io'),
    container: (id) => containers.get(id),
    buildProcess: (record, exec, tty, size) =>
      specs.buildExec({
        config: record.config,
        hostConfig: effectiveHostConfig(record),
        rootfs: layers.graphData(record.id)['MergedDir'] ?? '',
        argv: exec.Cmd,
        env: exec.Env,
        user: exec.User,
        workingDir: exec.WorkingDir,
        tty,
        privileged: exec.Privileged,
        ...(size ? { consoleSize: [size.height, size.width] as const } : {}),
      }),
    emit: (action, record, attributes) => hooks.emit(action, record, attributes),
  });
  const healthChecks = new HealthChecks({
    log,
    replies,
    container: (id) => containers.get(id),
    probe: async (container, plan, signal) => {
      const result = await runProbe(execs, container, plan, signal);
      if (!signal.aborted) metrics.healthCheck(result.exitCode === 0);
      return result;
    },
    report: (id, startedAt, result) => containers.tell(id, { type: 'health.probed', startedAt, result }),
  });
  const statsFeeds = new StatsFeeds({
    log,
    reader: await createStatsReader(parseCgroupMounts(await readFile('/proc/self/mountinfo', 'utf8'))),
    container: (id) => containers.get(id),
  });
  tasks.onEvent((event) => {
    switch (event.type) {
      case 'exit':
        if (event.execId === '') containers.tell(event.id, { type: 'task.exited', exit: event.exit });
        else execs.exited(event.execId, event.exit);
        break;
      case 'oom':
        containers.tell(event.id, { type: 'task.oom' });
        break;
      case 'resumed':
        // It may be paused again by now: events come behind the replies.
        tasks.get(event.id).then(
          (task) => task?.status === 'running' && containers.tell(event.id, { type: 'task.resumed' }),
          (error: unknown) =>
            log.warn({ err: error, container: event.id }, 'the state of a resumed container is not known'),
        );
        break;
      default:
    }
  });
  return { deps, ios, hooks, containers, services, execs, healthChecks, statsFeeds };
}

interface EffectObserver {
  readonly started: (seconds: number) => void;
  readonly released: (record: ContainerRecord) => void;
}

/** Returns the effects, each of which is noted while it is under way. */
function notedEffects(
  effects: ContainerEffects,
  inFlight: InFlight,
  { started, released }: EffectObserver,
): ContainerEffects {
  const timed = async <T>(work: Promise<T>): Promise<T> => {
    const begunMs = performance.now();
    const result = await work;
    started((performance.now() - begunMs) / 1000);
    return result;
  };
  const note = <T>({ id }: ContainerRecord, work: Promise<T>): Promise<T> => inFlight.note(id, work);
  return {
    create: (record) => note(record, effects.create(record)),
    start: (record) => note(record, timed(effects.start(record))),
    adopt: (input) => note(input.record, effects.adopt(input)),
    stop: (input, signal) => note(input.record, effects.stop(input, signal)),
    pause: (record) => note(record, effects.pause(record)),
    unpause: (record) => note(record, effects.unpause(record)),
    drain: (record) => note(record, effects.drain(record)),
    release: (record) => note(record, effects.release(record)).finally(() => released(record)),
    remove: (input) => note(input.record, effects.remove(input)),
    rewire: (input) => note(input.record, effects.rewire(input)),
    save: (record) => effects.save(record),
  };
}

/** @throws EngineError invalid when there is none. */
function installedInit(path: string): string {
  if (path === '')
    throw invalid(
      'no init process: exec: "docker-init": executable file not found in $PATH; install tini or set init-path',
      { code: 'NO_INIT' },
    );
  return path;
}
