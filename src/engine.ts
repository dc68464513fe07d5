/** The composition root: puts drivers, actors and routes together. Only this file and main.ts know the concrete classes. */
import { randomUUID } from 'node:crypto';
import { mkdir, readFile, rm } from 'node:fs/promises';
import { availableParallelism } from 'node:os';
import { join } from 'node:path';
import { createActor } from 'xstate';
import { ApiListeners } from './api-listeners.js';
import { ContainerArchives } from './actors/container/archives.js';
import { CommitSource } from './actors/container/commit-source.js';
import { ContainerIoRegistry } from './actors/container/container-io.js';
import { createContainerEffects } from './actors/container/container.effects.js';
import { createContainerMachine } from './actors/container/container.machine.js';
import type { ContainerRecord } from './actors/container/container.record.js';
import { shownLinks } from './actors/container/legacy-links.js';
import { isRunning } from './actors/container/container.record.js';
import type { ContainerDeps } from './actors/container/deps.js';
import { ContainerDirectory } from './actors/container/directory.js';
import { draftContainer } from './actors/container/draft.js';
import { writeContainerFiles } from './actors/container/files.js';
import { clearPlaces } from './actors/container/volume-use.js';
import { createContainerHooks } from './actors/container/hooks.js';
import { PauseGate } from './actors/container/pause-gate.js';
import { ContainerRecords, type LoadedRecords } from './actors/container/records.js';
import { ContainerServices } from './actors/container/services.js';
import { createEngineMachine } from './actors/engine/engine.machine.js';
import { DiskUsages } from './actors/engine/disk-usage.js';
import { readHostInfo } from './actors/engine/host.js';
import { presentOwners } from './actors/engine/present-owners.js';
import { rememberRecentExits } from './actors/engine/recent-exits.js';
import { recoverContainers } from './actors/engine/recovery.js';
import { stopContainers } from './actors/engine/shutdown.js';
import { SystemService } from './actors/engine/system.js';
import { HealthChecks } from './actors/health/directory.js';
import { runProbe } from './actors/health/probe.js';
import { StatsFeeds } from './actors/stats/feeds.js';
import { ExecDirectory } from './actors/exec/directory.js';
import { Replies } from './actors/kit/replies.js';
import { createPullSystem, createTransferPool } from './actors/pull/system.js';
import { createPushPool, createPushSystem } from './actors/push/system.js';
import type { LiveConfig, ReloadResult } from './config/live-config.js';
import { createEngineMetrics } from './engine-metrics.js';
import { checkDefaultLog, containerDefaults, systemSettings } from './engine-settings.js';
import { openEventLog } from './events/event-log.js';
import { AuditLog } from './http/audit.js';
import { createFront } from './http/front.js';
import { absentPartRoutes } from './http/routes/absent-parts.js';
import { archiveRoutes } from './http/routes/archive.js';
import { containerStreamRoutes } from './http/routes/container-streams.js';
import { containerRoutes } from './http/routes/containers.js';
import { engineConfigRoutes } from './http/routes/engine-config.js';
import { eventRoutes } from './http/routes/events.js';
import { execRoutes } from './http/routes/exec.js';
import { diskUsageRoutes } from './http/routes/disk-usage.js';
import { imageArchiveRoutes } from './http/routes/image-archives.js';
import { h2cRoutes } from './http/routes/h2c.js';
import { imageRoutes } from './http/routes/images.js';
import { networkRoutes } from './http/routes/networks.js';
import { pingRoutes } from './http/routes/ping.js';
import { registryRoutes } from './http/routes/registry.js';
import { volumeRoutes } from './http/routes/volumes.js';
import { statsRoutes } from './http/routes/stats.js';
import { systemRoutes } from './http/routes/system.js';
import { messageOf } from './errors/engine-error.js';
import { invalid } from './errors/engine-error.js';
import { ImageGarbage } from './images/garbage.js';
import { importImage } from './images/import.js';
import { isDigest } from './images/reference.js';
import { FileImageStore } from './images/store.js';
import { checkDataRoot } from './inventory/fsck.js';
import { createLogDriver } from './logs/log-driver.js';
import { HostNetworks } from './network/host-networks.js';
import type { EventType } from './ports/events.js';
import type { Logger } from './ports/logger.js';
import { AuthorizationPlugins } from './plugins/authorization-plugins.js';
import { BlobRecords } from './registry/blob-records.js';
import { PartialBlobs } from './registry/partial-blobs.js';
import { useProxies } from './registry/proxy.js';
import { checkRequirements, hostWarnings } from './requirements.js';
import { cgroupsPathFor, parentCgroup } from './runtime/cgroup-path.js';
import { shareRealtime } from './runtime/cpu-realtime.js';
import { parseCgroupMounts, readHostFacts } from './runtime/host-facts.js';
import { buildResources } from './runtime/resources.js';
import { loadSeccompProfile } from './runtime/seccomp.js';
import { createSpecBuilder } from './runtime/spec-builder.js';
import { applyHostLimits } from './runtime/validate-resources.js';
import { checkRestartPolicy, validateContainer } from './runtime/validate.js';
import { lookUpUser } from './runtime/user-lookup.js';
import { ArchiveWorkers } from './storage/archives.js';
import { openOverlay2 } from './storage/overlay2.js';
import { releaseWhenIdle } from './sys/memory.js';
import { emptyDirectory } from './sys/temporary-directory.js';
import type { ServiceManager } from './service-manager.js';
import { readRecord, writeRecord } from './storage/record-store.js';
import { LocalVolumes } from './storage/volumes.js';
import { createStatsReader } from './stats/reader.js';
import { createStdio, reopenStdio } from './supervisor/stdio.js';
import { createSupervisor } from './supervisor/supervisor.js';
import { PRODUCT_VERSION } from './version.js';
import { createWorkerPool } from './workers/pool.js';

const CERTS_DIR = '/etc/engine/certs.d';
/** How long replies in flight may take once the daemon is asked to stop. */
const LISTENER_CLOSE_MS = 2000;
const MAX_WORKERS = 3;

export interface Engine {
  /** Resolves when the daemon has ended; with the error when it could not start. */
  readonly ended: Promise<Error | undefined>;
  readonly addresses: () => readonly string[];
  stop(): void;
}

/** The directories of this daemon, which exist and are its own. */
export interface Roots {
  readonly dataRoot: string;
  readonly execRoot: string;
}

/**
 * Puts the daemon together and starts it. `onServing` is called when the listeners are open.
 * @throws EngineError for what is found to be wrong before anything was started.
 */
export async function startEngine(live: LiveConfig, { dataRoot, execRoot }: Roots, manager: ServiceManager, log: Logger, onServing: () => void): Promise<Engine> {
  // For what a reload cannot change; reloadable options are read from `live.current` at each use.
  const config = live.current;
  const listeners = new ApiListeners(live, manager, log);
  useProxies({ httpProxy: config.httpProxy, httpsProxy: config.httpsProxy, noProxy: config.noProxy });
  const [facts, host] = await Promise.all([readHostFacts(), readHostInfo()]);
  await checkRequirements(config, facts);
  const seccomp = config.seccompProfile === 'builtin' || config.seccompProfile === 'unconfined' ? config.seccompProfile : await loadSeccompProfile(config.seccompProfile);
  const inData = (...parts: string[]): string => join(dataRoot, ...parts);
  const id = await engineId(inData('engine-id.json'));
  const settings = await systemSettings(() => live.current, { dataRoot, execRoot }, facts, id);
  if (config.cpuRtPeriodMicroseconds > 0 || config.cpuRtRuntimeMicroseconds > 0) {
    await shareRealtime(parentCgroup({ driver: settings.cgroupDriver, parent: config.cgroupParent, ownCgroup: facts.cgroup.own }), config);
  }
  // In a directory of others it gets a name that no other daemon has.
  const tmpDir = await emptyDirectory(config.tmpDir === '' ? inData('tmp') : join(config.tmpDir, `engined-${id}`));

  const replies = new Replies();
  const pool = createWorkerPool({ maxThreads: Math.min(availableParallelism(), MAX_WORKERS) });
  const events = await openEventLog({ dir: inData('events'), onFailure: (error) => log.error({ err: error }, 'events are not recorded') });
  const metrics = await createEngineMetrics({
    address: config.metricsAddr,
    cpus: host.cpuCount,
    memoryBytes: host.memoryBytes,
    log,
    containers: () => containers.list(),
    eventSubscribers: () => events.subscribers,
  });
  const emit = (type: EventType, action: string, id: string, attributes: Readonly<Record<string, string>>): void => {
    events.emit(type, action, id, attributes);
    metrics.event(type, action);
  };
  const supervisor = createSupervisor({
    ...(config.supervisor === '' ? {} : { address: config.supervisor }),
    namespace: config.supervisorNamespace,
    execRoot,
    dataRoot,
    logger: log,
    criEnabled: config.criSupervisor,
    debug: config.debug,
  });
  const { tasks } = supervisor;
  const layers = await openOverlay2({ root: inData('overlay2'), workers: pool, log, storageOpts: config.storageOpts });
  const images = new FileImageStore(dataRoot, layers);
  const networkIdentities = inData('network', 'predefined.json');
  const network = new HostNetworks({
    bridge: settings.bridge,
    iptables: config.iptables,
    ip6tables: config.ip6tables,
    ipForward: config.ipForward,
    ipForwardNoDrop: config.ipForwardNoDrop,
    userlandProxy: config.userlandProxy,
    addressPools: config.defaultAddressPools,
    defaultNetworkOptions: config.defaultNetworkOpts,
    nameservers: () => config.dns,
    publishIp: config.ip,
    netnsRoot: join(execRoot, 'netns'),
    log,
    identities: {
      read: () => readRecord(networkIdentities),
      write: async (value) => {
        await mkdir(inData('network'), { recursive: true, mode: 0o710 });
        await writeRecord(networkIdentities, value);
      },
    },
  });
  const logs = createLogDriver((container) => metrics.logObserver(container));
  checkDefaultLog(logs, config);
  const records = new ContainerRecords(inData('containers'), { write: writeRecord, read: readRecord });
  const volumes = new LocalVolumes({ root: inData('volumes'), workers: pool });
  const archives = new ArchiveWorkers();
  const specs = createSpecBuilder(facts, () => ({ ulimits: config.defaultUlimits, noNewPrivileges: config.noNewPrivileges, seccomp, cdiSpecDirs: live.current.features['cdi'] === true ? live.current.cdiSpecDirs : [] }));
  const stdio = { create: async (request: Parameters<typeof createStdio>[0]) => createStdio(request), reopen: async (paths: Parameters<typeof reopenStdio>[0]) => reopenStdio(paths) };

  const pauseGate = new PauseGate();
  const deps: ContainerDeps = {
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
    volumeUsers: (name) => containers.list().flatMap(({ id, mounts }) => (mounts.some((mount) => mount.Type === 'volume' && mount.Name === name) ? [id] : [])),
    emit,
    ioRoot: join(execRoot, 'io'),
    placesRoot: join(execRoot, 'places'),
    find: (id) => containers.get(id),
    runtimeFor: ({ hostConfig }) => settings.runtimeChoice(hostConfig.Runtime),
    cgroupsPathFor: ({ id, hostConfig }) =>
      cgroupsPathFor({ driver: settings.cgroupDriver, parent: hostConfig.CgroupParent || config.cgroupParent, id, ownCgroup: facts.cgroup.own }),
    initPathFor: ({ hostConfig }) => ((hostConfig.Init ?? config.init) ? installedInit(settings.initPath) : undefined),
    writeFiles: (record) =>
      writeContainerFiles(
        {
          network,
          find: (id) => containers.get(id),
          dir: (id) => records.dir(id),
          settings: () => ({ dns: config.dns, dnsSearch: config.dnsSearch, dnsOptions: config.dnsOpts, hostGatewayIps: hostGatewayIps() }),
        },
        record,
      ),
  };
  const hostGatewayIps = (): readonly string[] =>
    config.hostGatewayIps.length > 0 ? config.hostGatewayIps : network.list().flatMap(({ name, subnets }) => (name === 'bridge' ? subnets.map(({ gateway }) => gateway) : []));
  const ios = new ContainerIoRegistry();
  ios.connect(deps);
  // Whoever is linked to a container that got another address finds it there.
  const refreshLinks = ({ id }: ContainerRecord): void => {
    for (const other of containers.list()) {
      if (other.links?.some((link) => link.id === id) && isRunning(other)) deps.writeFiles(other).catch((error: unknown) => log.error({ err: error, container: other.id }, 'hosts file not written'));
    }
  };
  const hooks = createContainerHooks(deps, (id, record) => {
    containers.publish(id, record);
    if (record?.state.status === 'running') refreshLinks(record);
    healthChecks.observe(id, record);
    if (record && isDigest(record.image)) images.used(record.image);
    if (record) return;
    execs.removeOf(id);
    statsFeeds.removed(id);
  });
  const machine = createContainerMachine(createContainerEffects(deps, ios, (record, signal) => hooks.emit('kill', record, { signal: String(signal) })), hooks, replies);
  const containers = new ContainerDirectory(
    {
      replies,
      log,
      images,
      layers,
      network,
      draft: (request, id, name) =>
        draftContainer(
          {
            images,
            network,
            logs,
            defaults: () => containerDefaults(live.current, host.hostname, facts),
            architecture: host.architecture,
            validate: (given, hostConfig) => validateContainer(given, hostConfig, facts, { cgroupDriver: settings.cgroupDriver }),
            find: (reference) => containers.find(reference),
          },
          request,
          id,
          name,
        ),
    },
    machine,
    (record) => ({ phase: isRunning(record) ? 'running' : 'idle', record }),
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
      return { linux: { ...(await buildResources(hostConfig)) }, warnings };
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
        hostConfig: record.hostConfig,
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
    probe: (container, plan, signal) => runProbe(execs, container, plan, signal),
    report: (id, startedAt, result) => containers.tell(id, { type: 'health.probed', startedAt, result }),
  });
  const statsFeeds = new StatsFeeds({ log, reader: await createStatsReader(parseCgroupMounts(await readFile('/proc/self/mountinfo', 'utf8'))), container: (id) => containers.get(id) });
  // Threads of its own: a client that sends slowly holds its task as long as it likes.
  const archivePool = createWorkerPool({ maxThreads: 2, tasksPerThread: 16 });
  const transferPool = createTransferPool(availableParallelism());
  const blobRecords = new BlobRecords(inData('image', 'distribution'));
  const partialBlobs = new PartialBlobs(inData('image', 'partial'));
  const pulls = createPullSystem({
    replies,
    records: blobRecords,
    partials: partialBlobs,
    log,
    images,
    layers,
    ...transferPool,
    emit: (action, id, attributes) => emit('image', action, id, attributes),
    rules: () => ({ insecure: live.current.insecureRegistries, mirrors: live.current.registryMirrors, mirrorsFor: live.current.registryMirrorsFor, certsDir: CERTS_DIR }),
    maxConcurrentDownloads: () => live.current.maxConcurrentDownloads,
    maxAttempts: () => live.current.maxDownloadAttempts,
    observer: metrics.pulls,
  });
  const pushPool = createPushPool(availableParallelism());
  const pushes = createPushSystem({
    replies,
    log,
    images,
    layers,
    records: blobRecords,
    sessions: pulls.sessions,
    pool: pushPool,
    emit: (action, id, attributes) => emit('image', action, id, attributes),
    maxConcurrentUploads: () => live.current.maxConcurrentUploads,
    maxAttempts: () => live.current.maxDownloadAttempts,
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
          (error: unknown) => log.warn({ err: error, container: event.id }, 'the state of a resumed container is not known'),
        );
        break;
      default:
    }
  });

  const system = new SystemService({
    productVersion: PRODUCT_VERSION,
    host,
    containers,
    images,
    layers,
    settings: settings.shown,
    components: () => settings.components(tasks),
    warnings: () => [...hostWarnings(facts, config), ...listeners.warnings],
    listeners: () => events.subscribers,
  });
  const users = (id: string): readonly { id: string; running: boolean }[] =>
    containers
      .list()
      .filter(({ image }) => image === id)
      .map((record) => ({ id: record.id, running: isRunning(record) }));
  const garbage = new ImageGarbage({
    dataRoot,
    rules: { highPercent: config.imageGcHighPercent, lowPercent: config.imageGcLowPercent, minAgeSeconds: config.imageGcMinAgeSeconds },
    store: images,
    users,
    emit: (action, id, attributes) => emit('image', action, id, attributes),
    layerBytes: (chainIds) => usage.layerBytes(chainIds),
    log,
  });
  const view = {
    links: (record: ContainerRecord) => shownLinks(record, (id) => containers.get(id)),
    imageStillNamed: (record: ContainerRecord) => images.stillNames(record.config.Image, record.image),
    graphData: (id: string) => ({ Name: layers.driver, Data: layers.graphData(id) }),
    dir: (id: string) => records.dir(id),
    sandboxKey: ({ id, hostConfig }: ContainerRecord) => (hostConfig.NetworkMode === 'host' ? '/proc/1/ns/net' : network.sandboxPath(id)),
    execIds: (id: string) => execs.idsOf(id),
    droppedLines: (id: string) => ios.droppedLines(id),
  };
  const authorization = new AuthorizationPlugins();
  const usage = new DiskUsages({ dataRoot, layers, pool });
  const front = createFront({
    authorizer: authorization,
    audit: new AuditLog(log, () => live.current.features['audit'] === true),
    product: { version: PRODUCT_VERSION, experimental: config.experimental },
    logger: log,
    ...(metrics.requests === undefined ? {} : { observer: metrics.requests }),
    routes: [
      ...pingRoutes({ builderVersion: '1', swarmState: () => 'inactive' }),
      ...systemRoutes(system),
      ...absentPartRoutes(),
      ...containerRoutes({ containers, services, view, imageId: (reference) => imageIdOf(images, reference), isAncestor: (image, ancestor) => isAncestor(images, image, ancestor) }),
      ...containerStreamRoutes({ containers, ios, logs, services, dir: (id) => records.dir(id) }),
      ...statsRoutes({ containers, feeds: statsFeeds }),
      ...archiveRoutes(
        new ContainerArchives({ log, containers, layers, tasks, archives, volumes, dir: (id) => records.dir(id), lookUpUser: (rootfs, user) => lookUpUser(rootfs, user, []), emit: (action, record) => hooks.emit(action, record) }),
      ),
      ...execRoutes({ containers, services, execs }),
      ...imageRoutes({
        images,
        layers,
        pulls: pulls.pulls,
        partials: partialBlobs,
        users,
        emit: (action, id, attributes) => emit('image', action, id, attributes),
        containers: new CommitSource(containers, (action, record, attributes) => hooks.emit(action, record, attributes)),
        importer: (request) => importImage({ images, layers, pool: transferPool.pool, tmpDir }, request),
        architecture: host.architecture,
        layerBytes: (chainIds) => usage.layerBytes(chainIds),
      }),
      ...registryRoutes({ images, pushes, queries: pulls.queries }),
      ...networkRoutes({ networks: network, containers, emit: (action, id, attributes) => emit('network', action, id, attributes) }),
      ...diskUsageRoutes({
        usage,
        images,
        containers,
        view,
        volumes,
        dataRoot,
        fsck: (repair) => checkDataRoot({ dataRoot, pool, owners: () => presentOwners({ layers, images, volumes, containers }) }, repair),
      }),
      ...imageArchiveRoutes({ images, layers, pool: archivePool, dataRoot, emit: (action, id, attributes) => emit('image', action, id, attributes) }),
      ...volumeRoutes({ volumes, containers, emit: (action, name, attributes) => emit('volume', action, name, attributes) }),
      ...eventRoutes(events),
      // There is no builder that would take these connections.
      ...h2cRoutes({}),
      ...engineConfigRoutes(live),
    ],
  });
  live.onReload((result) => {
    authorization.use(live.current.authorizationPlugins).catch((error: unknown) => log.error({}, `${messageOf(error)}; it denies every request until it answers`));
    if (result.ok) emit('daemon', 'reload', settings.shown().id, { name: host.hostname, ...reloadOutcome(result), ...live.reloadableSettings() });
  });
  let stopReleasing = (): void => undefined;
  let loaded: LoadedRecords = { records: [], removed: [], damaged: [] };
  let hasRecovered = false;
  let failure: Error | undefined;
  const close = async (): Promise<void> => {
    await Promise.all([listeners, metrics].map((listener) => listener.close(LISTENER_CLOSE_MS)));
    if (hasRecovered && !failure && !live.current.liveRestore) await stopContainers(containers, live.current.shutdownTimeoutSeconds, log);
    await garbage.close();
    // Before that it does not know the containers of an earlier run, which may still need the bridge.
    if (hasRecovered) await network.stop();
    await supervisor.stop();
    authorization.close();
    await events.close();
    await layers.close();
    await Promise.all([pool.close(), transferPool.pool.close(), pushPool.close(), archivePool.close(), archives.close(), volumes.close()]);
    await rm(tmpDir, { recursive: true, force: true });
  };

  let finish: (error: Error | undefined) => void = () => undefined;
  const ended = new Promise<Error | undefined>((resolve) => (finish = resolve));
  const root = createActor(
    createEngineMachine(
      {
        boot: async () => {
          await Promise.all([
            supervisor.start(),
            network.start(),
            volumes.load().then(({ removed, damaged }) => {
              report(log, 'volumes', removed);
              if (damaged.length > 0) log.error({ volumes: damaged }, 'volumes without a readable record are left alone');
            }),
            records.load().then((found) => (loaded = found)),
            layers.load().then(async ({ removed }) => {
              report(log, 'layers', removed);
              report(log, 'images', (await images.load()).removed);
              await partialBlobs.load();
              await blobRecords.load(new Set(images.list().flatMap(({ config }) => config.rootfs.diff_ids)));
            }),
          ]);
        },
        recover: async () => {
          rememberRecentExits(events, containers).catch((error: unknown) => log.error({ err: error }, 'exits of removed containers cannot be read from the events'));
          await recoverContainers({ log, loaded, containers, tasks, layers, network });
          hasRecovered = true;
          await clearPlaces(deps.placesRoot);
          // Containers that still run have taken over theirs by then.
          if (volumes.hasMounts) void containers.settled().then(() => volumes.unmountIdle()).catch((error: unknown) => log.error({ err: error }, 'volumes stay mounted'));
          report(log, 'layers', await layers.collect());
        },
        open: async () => {
          await authorization.use(config.authorizationPlugins);
          await metrics.listen();
          await listeners.open(front);
        },
        drain: async () => {
          stopReleasing();
          await close();
        },
        onServing: () => {
          stopReleasing = releaseWhenIdle(() => pool.queued === 0 && transferPool.pool.queued === 0);
          garbage.start();
          onServing();
        },
        onFailed: (error) => {
          failure ??= error instanceof Error ? error : new Error(String(error));
        },
        onStopped: () => undefined,
      },
      {
        containers: containers.collection.logic,
        execs: execs.collection.logic,
        healthChecks: healthChecks.collection.logic,
        sessions: pulls.sessions.collection.logic,
        transfers: pulls.transfers.collection.logic,
        pulls: pulls.pulls.collection.logic,
        pushes: pushes.collection.logic,
      },
    ),
  );
  root.subscribe({
    complete: () => finish(failure),
    error: (error) => finish(error instanceof Error ? error : new Error(String(error))),
  });
  root.start();
  const sendTo = (name: string) => {
    const actor = root.system.get(name) as { send(event: unknown): void };
    return (event: unknown): void => actor.send(event);
  };
  containers.connect(sendTo('containers'));
  execs.connect(sendTo('execs'));
  healthChecks.connect(sendTo('healthChecks'));
  pulls.sessions.connect(sendTo('sessions'));
  pulls.transfers.connect(sendTo('transfers'));
  pulls.pulls.connect(sendTo('pulls'));
  pushes.connect(sendTo('pushes'));
  return { ended, addresses: () => listeners.addresses, stop: () => root.send({ type: 'engine.stop' }) };
}

/** @throws EngineError invalid when there is none. */
function installedInit(path: string): string {
  if (path === '') throw invalid('no init process: exec: "docker-init": executable file not found in $PATH; install tini or set init-path', { code: 'NO_INIT' });
  return path;
}

/** The daemon's identity: made once, kept with its data. */
async function engineId(path: string): Promise<string> {
  const stored = await readRecord(path);
  if (typeof stored === 'string') return stored;
  const id = randomUUID();
  await writeRecord(path, id);
  return id;
}

/** Keys by what the reload did to them, for its event. */
function reloadOutcome({ entries }: ReloadResult): Record<string, string> {
  const keys = (...verdicts: readonly string[]): string => entries.flatMap(({ key, verdict }) => (verdicts.includes(verdict) ? [key] : [])).join(',');
  return Object.fromEntries(Object.entries({ applied: keys('applied'), removed: keys('removed'), 'needs-restart': keys('needs-restart') }).filter(([, value]) => value !== ''));
}

function report(log: Logger, what: string, removed: readonly string[]): void {
  if (removed.length > 0) log.warn({ removed }, `start-up removed unusable ${what}`);
}

function imageIdOf(images: FileImageStore, reference: string): string | undefined {
  try {
    return images.idOf(reference);
  } catch {
    // A malformed reference names no image: a filter by it selects nothing.
    return undefined;
  }
}

function isAncestor(images: FileImageStore, image: string, ancestor: string): boolean {
  for (let current = images.get(image as `sha256:${string}`), id = image; id !== ''; ) {
    if (id === ancestor) return true;
    id = current?.parent ?? '';
    current = id === '' ? undefined : images.get(id as `sha256:${string}`);
  }
  return false;
}
