/** The drivers and the record of events, as the configuration wants them. Nothing is started yet. */
import { availableParallelism } from 'node:os';
import { join } from 'node:path';
import type { ContainerRecord } from '../actors/container/container.record.js';
import { ContainerRecords } from '../actors/container/records.js';
import { DiskUsages } from '../actors/engine/disk-usage.js';
import { openEventLog } from '../events/event-log.js';
import { FileImageStore } from '../images/store.js';
import { createLogDriver } from '../logs/drivers/log-driver.js';
import { HostNetworks } from '../network/host-networks.js';
import type { RecordFile } from '../network/network-records.js';
import { ProtocolNetworkPlugins } from '../plugins/network-plugins.js';
import { ProtocolVolumePlugins } from '../plugins/volume-plugins.js';
import type { EventType } from '../ports/events.js';
import { loadSeccompProfile } from '../runtime/seccomp.js';
import { createSpecBuilder } from '../runtime/spec-builder.js';
import { ArchiveWorkers } from '../storage/archives.js';
import { storageDriver } from '../storage/drivers/index.js';
import { openLayerStore } from '../storage/layers/layer-store.js';
import { readRecord, writeRecord } from '../storage/record-store.js';
import { Volumes } from '../storage/volumes.js';
import { rootOwner } from '../sys/users/id-maps.js';
import { inheritedLimits } from '../sys/process/limits.js';
import { createStdio, reopenStdio } from '../supervisor/stdio.js';
import { createSupervisor } from '../supervisor/supervisor.js';
import { createWorkerPool } from '../workers/pool.js';
import { creationDefaults } from './settings.js';
import { BUILD, PRODUCT_VERSION } from '../version.js';
import type { Base } from './base.js';
import { createEngineMetrics } from './metrics.js';
import { makeDirectories } from '../sys/files/make-directories.js';

const MAX_WORKERS = 3;

export type Drivers = Awaited<ReturnType<typeof openDrivers>>;

/** `containers` is asked when metrics are read. */
export async function openDrivers(
  { live, dataRoot, execRoot, supervisorRoot, reserve, idMaps, facts, host, settings, log }: Base,
  containers: () => readonly ContainerRecord[],
) {
  const config = live.fixed;
  const inData = (...parts: string[]): string => join(dataRoot, ...parts);
  const seccomp =
    config.seccompProfile === 'builtin' || config.seccompProfile === 'unconfined'
      ? config.seccompProfile
      : await loadSeccompProfile(config.seccompProfile);
  const pool = createWorkerPool({ maxThreads: Math.min(availableParallelism(), MAX_WORKERS) });
  const events = await openEventLog({
    dir: inData('events'),
    onFailure: (error) => log.error({ err: error }, 'events are not recorded'),
  });
  const supervisor = createSupervisor({
    ...(config.supervisor === '' ? {} : { address: config.supervisor }),
    namespace: config.supervisorNamespace,
    execRoot,
    dataRoot: supervisorRoot,
    logger: log,
    criEnabled: config.criSupervisor,
    // The limits are read again for each process that it launches.
    get debug() {
      return live.current.debug;
    },
  });
  const { tasks } = supervisor;
  const driver = storageDriver(config.storageDriver);
  const layers = await openLayerStore({
    root: inData(driver.name),
    driver,
    workers: pool,
    log,
    storageOpts: config.storageOpts,
    idMaps,
  });
  const images = new FileImageStore(dataRoot, layers, reserve.urgent);
  const metrics = await createEngineMetrics({
    address: config.metricsAddr,
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
    containers,
    eventSubscribers: () => events.subscribers,
  });
  const emit = (type: EventType, action: string, id: string, attributes: Readonly<Record<string, string>>): void => {
    events.emit(type, action, id, attributes);
    metrics.event(type, action);
  };
  const networkFile = (name: string): RecordFile => ({
    read: () => readRecord(inData('network', name)),
    write: async (value, urgent = false) => {
      await makeDirectories(inData('network'), { mode: 0o710 });
      const write = (): Promise<void> => writeRecord(inData('network', name), value);
      await (urgent ? reserve.urgent(write) : write());
    },
  });
  const networkPlugins = new ProtocolNetworkPlugins();
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
    plugins: networkPlugins,
    log,
    identities: networkFile('predefined.json'),
    pluginDebts: networkFile('plugin-debts.json'),
  });
  const logs = createLogDriver((container) => metrics.logObserver(container));
  const records = new ContainerRecords(
    inData('containers'),
    { write: writeRecord, read: readRecord, urgent: reserve.urgent },
    rootOwner(idMaps),
    creationDefaults(config),
  );
  const volumePlugins = new ProtocolVolumePlugins();
  const volumes = new Volumes({
    root: inData('volumes'),
    workers: pool,
    plugins: volumePlugins,
    owner: rootOwner(idMaps),
  });
  const archives = new ArchiveWorkers(idMaps);
  const inherited = inheritedLimits();
  const specs = createSpecBuilder(facts, () => ({
    inherited,
    seccomp,
    cdiSpecDirs: live.current.features['cdi'] === true ? config.cdiSpecDirs : [],
  }));
  const stdio = {
    create: async (request: Parameters<typeof createStdio>[0]) => createStdio(request),
    reopen: async (paths: Parameters<typeof reopenStdio>[0]) => reopenStdio(paths),
  };
  const usage = new DiskUsages({ dataRoot, layers, pool });
  return {
    usage,
    pool,
    events,
    metrics,
    emit,
    supervisor,
    tasks,
    layers,
    images,
    network,
    logs,
    records,
    volumes,
    volumePlugins,
    networkPlugins,
    archives,
    specs,
    stdio,
  };
}
