/** The drivers and the record of events, as the configuration wants them. Nothing is started yet. */
import { availableParallelism } from 'node:os';
import { join } from 'node:path';
import type { ContainerRecord } from '../actors/container/container.record.js';
import { ContainerRecords } from '../actors/container/records.js';
import { DiskUsages } from '../actors/engine/disk-usage.js';
import { openEventLog } from '../events/event-log.js';
import { FileImageStore } from '../images/store.js';
import { createLogDriver } from '../logs/drivers/log-driver.js';
import { chosenBackend } from '../network/firewall-backends.js';
import { HostNetworks } from '../network/host-networks.js';
import type { OuterPorts } from '../network/outer-ports.js';
import { RootlessKitPorts } from '../network/rootlesskit-ports.js';
import type { RecordFile } from '../network/network-records.js';
import { PLUGIN_PLACES, type PluginPlaces } from '../plugins/discovery.js';
import { ManagedLookup } from '../plugins/managed/lookup.js';
import { ProtocolLogPlugins } from '../plugins/log-plugins.js';
import { ProtocolNetworkPlugins } from '../plugins/network-plugins.js';
import { ProtocolVolumePlugins } from '../plugins/volume-plugins.js';
import type { EventType } from '../ports/events.js';
import { giveUpMigration } from '../inventory/migration/unfinished.js';
import type { Owner } from '../ports/id-maps.js';
import type { Logger } from '../ports/logger.js';
import type { NetworkPlugins } from '../ports/network-plugin.js';
import type { LayerStore } from '../ports/storage.js';
import type { SupervisorProcess } from '../ports/supervisor.js';
import { internal, invalid, isEngineError } from '../errors/engine-error.js';
import { cdiDirs } from '../config/cdi-dirs.js';
import { JournaledReplies } from '../retries/kept-replies.js';
import { loadSeccompProfile, type SeccompProfile } from '../runtime/seccomp.js';
import { createSpecBuilder } from '../runtime/spec-builder.js';
import { ArchiveWorkers } from '../storage/archives.js';
import { driverPath, SNAPSHOTTER_FEATURE, snapshotterRow } from '../storage/drivers/index.js';
import { checkOwnOptions, driverCandidates, snapshotterOf } from '../storage/drivers/selection.js';
import type { DriverLayerStore } from '../storage/layers/layer-store.js';
import { openLayerStore } from '../storage/layers/open-layer-store.js';
import { readRecord, writeFixedRecord, writeRecord } from '../storage/record-store.js';
import { identityOf, readRunRecord, writeRunRecord } from '../storage/run-record.js';
import { type VolumeParts, Volumes } from '../storage/volumes.js';
import { rootOwner } from '../sys/users/id-maps.js';
import { inheritedLimits } from '../sys/process/limits.js';
import { createSupervisor } from '../supervisor/supervisor.js';
import { inSteps } from '../text/steps.js';
import { createWorkerPool, type WorkerPool } from '../workers/pool.js';
import { creationDefaults } from './settings.js';
import { composeStdio } from './stdio.js';
import { DescriptorKeeper } from '../sys/process/descriptor-keeper.js';
import { BUILD, PRODUCT_VERSION } from '../version.js';
import type { Base } from './base.js';
import { createEngineMetrics, type EngineMetricsDeps } from './metrics.js';
import { makeDirectories } from '../sys/files/make-directories.js';
import { QuickReader } from '../sys/files/quick-reader.js';

const MAX_WORKERS = 3;

/**
 * Statistics are asked for again, by some clients every half a minute: a thread that has read them knows where, and its
 * code is compiled.
 */
const STATS_IDLE_MS = 40_000;

export type Drivers = Awaited<ReturnType<typeof openDrivers>>;

/** Opens the drivers. `containers` is asked when metrics are read. */
export async function openDrivers(base: Base, containers: () => readonly ContainerRecord[]) {
  const { live, dataRoot, idMaps, facts, appArmor, log } = base;
  const config = live.fixed;
  const owner = rootOwner(idMaps);
  const seccomp = await seccompProfile(config.seccompProfile);
  const pool = createWorkerPool({ maxThreads: Math.min(availableParallelism(), MAX_WORKERS) });
  // Short tasks that a client waits for have a thread of their own, as the other threads may be busy with a layer.
  const promptPool = createWorkerPool({ maxThreads: 1 });
  const events = await openEventLog({
    dir: join(dataRoot, 'events'),
    onFailure: (error) => log.error({ err: error }, 'events are not recorded'),
  });
  const keptReplies = await JournaledReplies.open(join(dataRoot, 'retries'), log);
  const supervisor = composeSupervisor(base);
  const layers = await openLayers(base, pool, supervisor);
  const images = openImages(base, layers);
  const metrics = await createEngineMetrics({
    ...metricsFacts(base, layers),
    containers,
    eventSubscribers: () => events.subscribers,
  });
  const emit = (type: EventType, action: string, id: string, attributes: Readonly<Record<string, string>>): void => {
    events.emit(type, action, id, attributes);
    metrics.event(type, action);
  };
  const managedPlugins = new ManagedLookup();
  const pluginPlaces: PluginPlaces = { ...PLUGIN_PLACES, managed: managedPlugins };
  const networkPlugins = new ProtocolNetworkPlugins({ places: pluginPlaces });
  const network = composeNetworks(base, networkPlugins);
  const logPlugins = new ProtocolLogPlugins({ places: pluginPlaces });
  const records = composeRecords(base, layers.place, owner);
  const volumePlugins = new ProtocolVolumePlugins({ places: pluginPlaces });
  const removed = (name: string, driver: string): Promise<void> => {
    emit('volume', 'destroy', name, { driver });
    return events.written();
  };
  const volumes = composeVolumes(base, { workers: pool, plugins: volumePlugins, owner, removed });
  const inherited = inheritedLimits();
  const cdiSpecDirs = (): readonly string[] => cdiDirs(config.cdiSpecDirs, live.current.features);
  const specs = createSpecBuilder(facts, () => ({ inherited, seccomp, appArmor, cdiSpecDirs: cdiSpecDirs() }));
  const keeper = new DescriptorKeeper(join(base.execRoot, 'keepers'));
  const usage = new DiskUsages({ dataRoot, layers, pool });
  return {
    usage,
    pool,
    promptPool,
    statsPool: createWorkerPool({ maxThreads: 1, idleTimeoutMs: STATS_IDLE_MS }),
    events,
    keptReplies,
    metrics,
    emit,
    supervisor,
    tasks: inSteps('tasks', supervisor.tasks),
    pluginSupervisor: composeSupervisor(base, supervisor),
    layers: inSteps('layers', layers),
    images: inSteps('images', images),
    network: inSteps('network', network),
    logs: createLogDriver((container) => metrics.logObserver(container), logPlugins),
    records: inSteps('records', records),
    volumes: inSteps('volumes', volumes),
    volumePlugins,
    networkPlugins,
    logPlugins,
    managedPlugins,
    pluginPlaces,
    archives: new ArchiveWorkers(idMaps),
    specs: inSteps('specs', specs),
    keeper,
    stdio: inSteps('stdio', composeStdio(keeper, log)),
  };
}

function composeVolumes({ dataRoot }: Base, parts: Omit<VolumeParts, 'root'>): Volumes {
  return new Volumes({ root: join(dataRoot, 'volumes'), ...parts });
}

function openImages({ dataRoot, reserve }: Base, layers: DriverLayerStore): FileImageStore {
  return new FileImageStore(join(dataRoot, driverPath(layers.place, '')), layers, {
    // So it is in other engines that keep images in containerd.
    identity: layers.place === SNAPSHOTTER_FEATURE ? 'manifest' : 'config',
    urgent: reserve.urgent,
  });
}

/** Returns `builtin`, `unconfined`, or the profile in the file that the option names. */
async function seccompProfile(option: string): Promise<SeccompProfile | 'builtin' | 'unconfined'> {
  return option === 'builtin' || option === 'unconfined' ? option : loadSeccompProfile(option);
}

/** @param keeper runs the supervisor, whose namespace of plugins this is; undefined: it is that of containers. */
function composeRecords({ dataRoot, execRoot, live, reserve, log }: Base, store: string, owner: Owner) {
  return new ContainerRecords(
    join(dataRoot, driverPath(store, 'containers')),
    join(execRoot, 'records', store),
    {
      write: writeFixedRecord,
      read: readRecord,
      reader: () => {
        const files = new QuickReader();
        return (path) => readRecord(path, (at) => files.text(at));
      },
      identityOf,
      writeForRun: writeRunRecord,
      readForRun: readRunRecord,
      urgent: reserve.urgent,
      failed: (id, error) => log.error({ err: error, container: id }, 'record not saved'),
    },
    owner,
    creationDefaults(live.fixed),
  );
}

function composeSupervisor({ live, settings, execRoot, supervisorRoot, log }: Base, keeper?: SupervisorProcess) {
  const config = live.fixed;
  return createSupervisor({
    ...(config.supervisor === '' ? {} : { address: config.supervisor }),
    ...(keeper === undefined ? {} : { keeper }),
    namespace: keeper === undefined ? config.supervisorNamespace : config.supervisorPluginsNamespace,
    execRoot,
    dataRoot: supervisorRoot,
    logger: settings.cgroupDriver === 'none' ? withoutGroupErrors(log) : log,
    criEnabled: config.criSupervisor,
    snapshotter: snapshotterOf(live.current.features, config.storageDriver),
    // The limits are read again for each process that it launches.
    get debug() {
      return live.current.debug;
    },
  });
}

async function openLayers(
  { live, dataRoot, log, idMaps, seLinux }: Base,
  pool: WorkerPool,
  supervisor: SupervisorProcess,
): Promise<DriverLayerStore> {
  await giveUpMigration(dataRoot, log);
  const { storageDriver: name, storageOpts } = live.fixed;
  const snapshotter = snapshotterOf(live.current.features, name);
  const candidates =
    snapshotter === undefined ? driverCandidates(name, dataRoot) : [snapshotterRow(supervisor.snapshots(snapshotter))];
  for (const driver of candidates) {
    checkOwnOptions(driver, storageOpts);
    if (seLinux && driver.hasLabels !== true)
      throw invalid(
        `selinux-enabled: the storage driver ${driver.shownName ?? driver.name} cannot label the files of containers`,
      );
    const root = join(dataRoot, driver.name);
    try {
      const labelOf = (id: string): string | undefined => seLinux?.mountLabelOf(id);
      return await openLayerStore({ root, driver, workers: pool, log, storageOpts, idMaps, labelOf });
    } catch (error) {
      if (driver === candidates.at(-1) || !isEngineError(error, 'unavailable')) throw error;
      log.warn({ err: error, driver: driver.name }, 'storage driver cannot be used, trying the next one');
    }
  }
  throw internal('no storage driver');
}

function metricsFacts(
  { live, host, settings, log, keptSockets }: Base,
  layers: LayerStore,
): Omit<EngineMetricsDeps, 'containers' | 'eventSubscribers'> {
  return {
    address: live.fixed.metricsAddr,
    cpus: host.cpuCount,
    identity: {
      version: PRODUCT_VERSION,
      commit: BUILD.commit,
      architecture: host.machine,
      graphdriver: layers.driver,
      kernel: host.kernelVersion,
      os: host.operatingSystem,
      os_type: 'linux',
      os_version: host.osVersion,
      daemon_id: settings.shown().id,
    },
    memoryBytes: host.memoryBytes,
    log,
    keptSockets,
  };
}

/** Shims say at each start that they cannot watch a group. Where nobody has one, that is no error. */
function withoutGroupErrors(log: Logger): Logger {
  const level = (message: string): 'debug' | 'error' => (message === 'add cg to OOM monitor' ? 'debug' : 'error');
  return {
    debug: (fields, message) => log.debug(fields, message),
    info: (fields, message) => log.info(fields, message),
    warn: (fields, message) => log.warn(fields, message),
    error: (fields, message) => log[level(message)](fields, message),
    child: (fields) => withoutGroupErrors(log.child(fields)),
  };
}

/** Without RootlessKit, as in a container, the machine of the daemon is what its namespace is. */
function outerPorts(log: Logger): OuterPorts | undefined {
  const directory = process.env['ROOTLESSKIT_STATE_DIR'];
  return directory ? new RootlessKitPorts(join(directory, 'api.sock'), log) : undefined;
}

function composeNetworks(
  { live, dataRoot, execRoot, reserve, settings, keptSockets, log }: Base,
  plugins: NetworkPlugins,
) {
  const config = live.fixed;
  const directory = join(dataRoot, 'network');
  const file = (name: string): RecordFile => ({
    read: () => readRecord(join(directory, name)),
    write: async (value, urgent = false) => {
      await makeDirectories(directory, { mode: 0o710 });
      const write = (): Promise<void> => writeRecord(join(directory, name), value);
      await (urgent ? reserve.urgent(write) : write());
    },
  });
  return new HostNetworks({
    // The options that are called like the setting, so that a new flag has its row there and its place in src/network.
    ...config,
    bridge: settings.bridge,
    firewallBackend: chosenBackend(config.firewallBackend),
    directRouting: config.allowDirectRouting,
    addressPools: config.defaultAddressPools,
    defaultNetworkOptions: config.defaultNetworkOpts,
    nameservers: () => config.dns,
    publishIp: config.ip,
    netnsRoot: join(execRoot, 'netns'),
    plugins,
    keptSockets,
    log,
    identities: file('predefined.json'),
    pluginDebts: file('plugin-debts.json'),
    outerPorts: config.rootless ? outerPorts(log) : undefined,
  });
}
