/**
 * Makes containers and all that belongs to their lives: execs, health checks, statistics. Each part is made from those
 * above it. `followViews` and `followTasks` come last, because they tell all parts of changes.
 */
import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { createContainerEffects } from '../actors/container/container.effects.js';
import type { ContainerEffects, ContainerHooks } from '../actors/container/container.effects.types.js';
import { createContainerMachine } from '../actors/container/container.machine.js';
import { draftContainer } from '../actors/container/create/draft.js';
import { effectiveHostConfig } from '../actors/container/create/effective-host-config.js';
import type { ContainerDeps } from '../actors/container/deps.js';
import { ContainerDirectory, type DirectoryDeps } from '../actors/container/directory.js';
import { ContainerHolds } from '../actors/container/holds.js';
import { Departures } from '../actors/container/life/departures.js';
import { Freezes } from '../actors/container/life/freezes.js';
import { createContainerHooks } from '../actors/container/life/hooks.js';
import { CommitNotes } from '../actors/container/mounts/commit-notes.js';
import { type LinkRefreshDeps, refreshLinks } from '../actors/container/network/link-refresh.js';
import { ContainerServices } from '../actors/container/services.js';
import { ContainerIoRegistry } from '../actors/container/streams/container-io.js';
import type { ContainerViews } from '../actors/container/views.js';
import { ExecDirectory } from '../actors/exec/directory.js';
import { HealthChecks } from '../actors/health/health-checks.js';
import { runProbe } from '../actors/health/probe.js';
import { InFlight } from '../actors/kit/in-flight.js';
import { Pace } from '../actors/kit/pace.js';
import { AllUsages } from '../actors/stats/all-usages.js';
import { StatsFeeds } from '../actors/stats/feeds.js';
import { isDigest } from '../images/reference.js';
import { buildResources } from '../runtime/resources.js';
import { lookUpUser } from '../runtime/user-lookup.js';
import { applyHostLimits } from '../runtime/validate-resources.js';
import { checkRestartPolicy, validateContainer } from '../runtime/validate.js';
import { batchedStats } from '../stats/batches.js';
import { unpackUsages } from '../stats/packed-usages.js';
import { processesBeside } from '../sys/process/namespace-members.js';
import { parseCgroupMounts } from '../sys/process/cgroup-mounts.js';
import { OWN_USERS } from '../sys/users/remapped-user.js';
import type { Base } from './base.js';
import { containerDeps } from './container-deps.js';
import type { Drivers } from './drivers.js';
import { inSteps } from '../text/steps.js';
import { notedEffects } from './noted-effects.js';
import { containerDefaults } from './settings.js';

/** After a crash the next actor waits at most this long for an effect that hangs. */
const EFFECTS_LIMIT_MS = 60_000;

/** Each daemon of an exec-root knows the notes of the one before. */
export function commitNotes(execRoot: string): CommitNotes {
  return new CommitNotes(join(execRoot, 'commits'));
}

export interface Containers {
  readonly views: ContainerViews;
  readonly deps: ContainerDeps;
  readonly ios: ContainerIoRegistry;
  readonly departures: Departures;
  readonly hooks: ContainerHooks;
  readonly containers: ContainerDirectory;
  readonly services: ContainerServices;
  readonly execs: ExecDirectory;
  readonly healthChecks: HealthChecks;
  readonly statsFeeds: StatsFeeds;
}

export async function composeContainers(base: Base, drivers: Drivers, views: ContainerViews): Promise<Containers> {
  const { log, replies } = base;
  const { layers, metrics } = drivers;
  const holds = new ContainerHolds(layers, base.seLinux);
  const deps = containerDeps(base, drivers, views, holds);
  const ios = new ContainerIoRegistry(deps);
  const departures = new Departures();
  const hooks = createContainerHooks(deps, ios, (id, record) => views.publish(id, record));
  const execs = composeExecs(base, drivers, deps, hooks);
  const inFlight = new InFlight();
  const effects = inSteps(
    'actor',
    createContainerEffects(deps, ios, departures, (record, signal) =>
      hooks.emit('kill', record, { signal: String(signal) }),
    ),
  );
  const noted = notedEffects(effects, inFlight, {
    started: (seconds) => metrics.containerStarted(seconds),
    releasing: ({ id }) => execs.removeUnstarted(id),
    released: ({ id }) => execs.endOf(id),
  });
  const containers = new ContainerDirectory(
    {
      ...directoryDeps(base, drivers, effects, { inFlight, departures }),
      views,
      holds,
      draft: drafter(base, drivers, views),
    },
    createContainerMachine(noted, hooks, replies),
  );
  const services = composeServices(base, drivers, { deps, hooks, containers });
  const healthChecks = composeHealthChecks(base, drivers, { views, containers, execs });
  const mounts = parseCgroupMounts(await readFile('/proc/self/mountinfo', 'utf8'));
  const groups = base.settings.cgroupDriver === 'none' ? undefined : mounts;
  const reader = batchedStats(async (targets) =>
    unpackUsages(await drivers.statsPool.run('read-stats', { mounts: groups, targets })),
  );
  const statsFeeds = new StatsFeeds({ log, reader, container: (id) => views.get(id) });
  const ids = (): string[] =>
    views
      .list()
      .filter(({ state }) => state.pid !== 0)
      .map(({ id }) => id);
  const usages = new AllUsages(ids, (id) => statsFeeds.read(id));
  metrics.readUsages(() => usages.all());
  const lives: Containers = {
    views,
    deps,
    ios,
    departures,
    hooks,
    containers,
    services,
    execs,
    healthChecks,
    statsFeeds,
  };
  followViews(base, drivers, lives);
  followTasks(base, drivers, lives);
  return lives;
}

function composeExecs(
  { log, replies, seLinux }: Base,
  { layers, tasks, stdio, specs }: Drivers,
  deps: ContainerDeps,
  hooks: ContainerHooks,
): ExecDirectory {
  return new ExecDirectory({
    log,
    replies,
    tasks,
    pauseGate: deps.pauseGate,
    stdio,
    ioRoot: deps.ioRoot,
    container: (id) => deps.find(id),
    buildProcess: (record, exec, tty, size) =>
      specs.buildExec({
        config: record.config,
        hostConfig: effectiveHostConfig(record),
        rootfs: layers.rootOf(record.id),
        argv: exec.Cmd,
        env: exec.Env,
        user: exec.User,
        workingDir: exec.WorkingDir,
        tty,
        privileged: exec.Privileged,
        appArmorProfile: record.appArmorProfile,
        ...(seLinux && record.labels ? { processLabel: record.labels.processLabel } : {}),
        ...(size ? { consoleSize: [size.height, size.width] as const } : {}),
      }),
    checkUser: async (record, user) => void (await lookUpUser(layers.rootOf(record.id), user, [])),
    emit: (action, record, attributes) => hooks.emit(action, record, attributes),
  });
}

function directoryDeps(
  { replies, log }: Base,
  { network, records, tasks }: Drivers,
  effects: ContainerEffects,
  { inFlight, departures }: { readonly inFlight: InFlight; readonly departures: Departures },
): Omit<DirectoryDeps, 'views' | 'holds' | 'draft'> {
  return {
    replies,
    log,
    network,
    settled: async (id) => {
      await inFlight.settled(id, EFFECTS_LIMIT_MS);
      await departures.over(id);
      await records.written(id);
    },
    saved: (id) => records.read(id),
    task: (id) => tasks.get(id),
    abandon: (record) => {
      const pace = new Pace('remove', () => undefined);
      return effects
        .remove({ record, options: { force: true, volumes: true } }, pace)
        .then(() => records.forget(record.id))
        .finally(() => pace.end());
    },
  };
}

function drafter(
  { live, facts, seLinux, host, settings, idMaps, shownMaps, dataRoot }: Base,
  { images, network, logs }: Drivers,
  views: ContainerViews,
): DirectoryDeps['draft'] {
  const { cgroupDriver } = settings;
  const context = {
    cgroupDriver,
    remapsUsers: idMaps !== undefined || shownMaps !== undefined,
    remapsFiles: idMaps !== undefined,
    givesOwnUsers: live.fixed.usernsRemap === OWN_USERS,
  };
  return (request, id, name) =>
    draftContainer(
      {
        images,
        network,
        logs,
        defaults: () => containerDefaults(live.whole, host.hostname, facts),
        validate: (config, hostConfig) => validateContainer(config, hostConfig, facts, context),
        find: (reference) => views.find(reference),
        takeLabels: (container, hostConfig) => seLinux?.take(container, hostConfig),
        dataRoot,
      },
      request,
      id,
      name,
    );
}

function composeServices(
  { facts, settings }: Base,
  { layers, tasks, usage, emit }: Drivers,
  { deps, hooks, containers }: Pick<Containers, 'deps' | 'hooks' | 'containers'>,
): ContainerServices {
  return new ContainerServices({
    containers,
    layers,
    tasks,
    writeFiles: (record) => deps.writeFiles(record),
    // The runtime finds them by their group.
    pids: ({ id, state }) => (settings.cgroupDriver === 'none' ? processesBeside(state.pid) : tasks.pids(id)),
    emit: (action, record, attributes) => hooks.emit(action, record, attributes),
    diskBytes: (id) => usage.containerBytes(id),
    emitPrune: (reclaimedBytes) => emit('container', 'prune', '', { reclaimed: String(reclaimedBytes) }),
    checkRestartPolicy,
    resources: async (limits) => {
      const { hostConfig, warnings } = applyHostLimits(limits, facts, { update: true });
      return { linux: await buildResources(hostConfig), warnings };
    },
  });
}

function composeHealthChecks(
  { log }: Base,
  { metrics }: Drivers,
  { views, containers, execs }: Pick<Containers, 'views' | 'containers' | 'execs'>,
): HealthChecks {
  return new HealthChecks({
    log,
    container: (id) => views.get(id),
    probe: async (container, plan, signal) => {
      const result = await runProbe(execs, container, plan, signal, (seconds) => metrics.healthCheckStarted(seconds));
      if (!signal.aborted) metrics.healthCheck(result.exitCode === 0);
      return result;
    },
    report: (id, startedAt, result) => containers.tell(id, { type: 'health.probed', startedAt, result }),
  });
}

/** Tells each part that follows containers of every new record, in the order of the calls here. */
function followViews(
  { log }: Base,
  { network, images }: Drivers,
  { views, deps, healthChecks, execs, statsFeeds }: Containers,
): void {
  const links: LinkRefreshDeps = { network, views, log, writeFiles: (record) => deps.writeFiles(record) };
  views.subscribe((_id, record) => {
    if (record?.state.status === 'running') refreshLinks(links, record);
  });
  views.subscribe((id, record) => healthChecks.observe(id, record));
  views.subscribe((_id, record) => {
    if (record && isDigest(record.image)) images.used(record.image);
  });
  views.subscribe((id, record) => {
    if (record) return;
    execs.removeOf(id);
    statsFeeds.removed(id);
  });
}

/** Tells the actors what the supervisor reports about tasks. */
function followTasks({ log }: Base, { tasks }: Drivers, { containers, execs }: Containers): void {
  const freezes = new Freezes({ tasks, log, tell: (id, fact) => containers.tell(id, fact) });
  tasks.onEvent((event) => {
    switch (event.type) {
      case 'exit':
        if (event.execId === '') containers.tell(event.id, { type: 'task.exited', exit: event.exit });
        else execs.exited(event.execId, event.exit);
        break;
      case 'oom':
        containers.tell(event.id, { type: 'task.oom' });
        break;
      case 'paused':
      case 'resumed':
        freezes.changed(event.id);
    }
  });
}
