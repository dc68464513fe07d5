/** The reply to GET /info. Its members keep their order, because old clients print them as they come. */
import type { ComponentVersion, SystemFacts, SystemSettings } from '../../actors/engine/system.js';
import type { AtLeast } from './at-least.js';

/** Renders the reply. @param features what runtimes report of themselves, by their names. */
export function infoJson(facts: SystemFacts, features: ReadonlyMap<string, string>, atLeast: AtLeast): unknown {
  return {
    ...contentJson(facts),
    ...hostLimitsJson(facts),
    ...processJson(facts, atLeast),
    ...hostJson(facts, atLeast),
    ...configurationJson(facts, features),
    ...componentsJson(facts, atLeast),
    ...placementJson(facts, atLeast),
  };
}

function contentJson({ settings, containers, images, storage, drivers }: SystemFacts): object {
  const { total, running, paused } = containers;
  return {
    ID: settings.id,
    Containers: total,
    ContainersRunning: running,
    ContainersPaused: paused,
    ContainersStopped: total - running - paused,
    Images: images,
    Driver: storage.driver,
    DriverStatus: storage.status,
    Plugins: {
      Volume: drivers.volume,
      Network: drivers.network,
      Authorization: settings.authorizationPlugins.length > 0 ? settings.authorizationPlugins : null,
      Log: drivers.log,
    },
  };
}

function hostLimitsJson({ settings: { limits } }: SystemFacts): object {
  return {
    MemoryLimit: limits.memoryLimit,
    SwapLimit: limits.swapLimit,
    CpuCfsPeriod: limits.cpuQuota,
    CpuCfsQuota: limits.cpuQuota,
    CPUShares: limits.cpuShares,
    CPUSet: limits.cpuset !== undefined,
    PidsLimit: limits.pids,
  };
}

function processJson({ settings, figures, eventListeners }: SystemFacts, atLeast: AtLeast): object {
  return {
    IPv4Forwarding: figures.ipv4Forwarding,
    // Nobody loads the module for it at the start any more, so they told nothing.
    ...(atLeast(1, 50) ? {} : { BridgeNfIptables: false, BridgeNfIp6tables: false }),
    Debug: settings.debug,
    NFd: figures.fileDescriptors,
    OomKillDisable: settings.limits.oomKillDisable,
    NGoroutines: figures.activities,
    SystemTime: new Date().toISOString(),
    LoggingDriver: settings.logDriver,
    CgroupDriver: settings.cgroupDriver,
    CgroupVersion: settings.cgroupVersion,
    NEventsListener: eventListeners,
  };
}

function hostJson({ settings, host }: SystemFacts, atLeast: AtLeast): object {
  return {
    KernelVersion: host.kernelVersion,
    OperatingSystem: host.operatingSystem,
    OSVersion: host.osVersion,
    OSType: 'linux',
    Architecture: host.machine,
    IndexServerAddress: 'https://index.docker.io/v1/',
    RegistryConfig: registriesJson(settings, atLeast),
    NCPU: host.cpuCount,
    MemTotal: host.memoryBytes,
  };
}

function registriesJson({ insecureCidrs, insecureHosts, registryMirrors }: SystemSettings, atLeast: AtLeast): object {
  return {
    ...(atLeast(1, 47)
      ? {}
      : { AllowNondistributableArtifactsCIDRs: null, AllowNondistributableArtifactsHostnames: null }),
    InsecureRegistryCIDRs: ['::1/128', '127.0.0.0/8', ...insecureCidrs],
    IndexConfigs: {
      'docker.io': { Name: 'docker.io', Mirrors: registryMirrors, Secure: true, Official: true },
      ...Object.fromEntries(
        insecureHosts.map((name) => [name, { Name: name, Mirrors: [], Secure: false, Official: false }]),
      ),
    },
    Mirrors: registryMirrors.length === 0 ? null : registryMirrors,
  };
}

function configurationJson(
  { settings, host, engineVersion }: SystemFacts,
  features: ReadonlyMap<string, string>,
): object {
  return {
    GenericResources: settings.genericResources.length === 0 ? null : settings.genericResources.map(genericResource),
    DockerRootDir: settings.dataRoot,
    HttpProxy: maskCredentials(settings.httpProxy),
    HttpsProxy: maskCredentials(settings.httpsProxy),
    NoProxy: settings.noProxy,
    Name: host.hostname,
    Labels: settings.labels,
    ExperimentalBuild: settings.experimental,
    ServerVersion: engineVersion,
    Runtimes: runtimesJson(settings.runtimes, features),
    DefaultRuntime: settings.defaultRuntime,
    Swarm: {
      NodeID: '',
      NodeAddr: '',
      LocalNodeState: 'inactive',
      ControlAvailable: false,
      Error: '',
      RemoteManagers: null,
    },
    LiveRestoreEnabled: settings.liveRestore,
    Isolation: '',
    InitBinary: settings.initBinary,
  };
}

function runtimesJson(runtimes: SystemSettings['runtimes'], features: ReadonlyMap<string, string>): object {
  return Object.fromEntries(
    Object.entries(runtimes).map(([name, runtime]) => {
      const reported = features.get(name);
      const status = { 'org.opencontainers.runtime-spec.features': reported };
      return [name, reported === undefined ? runtime : { ...runtime, status }];
    }),
  );
}

function componentsJson({ components }: SystemFacts, atLeast: AtLeast): object {
  const commit = (wanted: string): object => commitJson(components, wanted, atLeast);
  return { ContainerdCommit: commit('containerd'), RuncCommit: commit('runc'), InitCommit: commit('docker-init') };
}

function commitJson(components: readonly ComponentVersion[], wanted: string, atLeast: AtLeast): object {
  const component = components.find(({ name }) => name === wanted);
  // Some distributions build these programs without a commit.
  const id = component?.commit || (component?.version ?? '');
  return atLeast(1, 49) ? { ID: id } : { ID: id, Expected: id };
}

function placementJson({ settings, warnings, devices }: SystemFacts, atLeast: AtLeast): object {
  const { securityOptions, addressPools, supervisorAddress, supervisorNamespace, pluginsNamespace } = settings;
  const allWarnings = [...warnings, ...devices.warnings];
  const containerd = {
    Address: supervisorAddress,
    Namespaces: { Containers: supervisorNamespace, Plugins: pluginsNamespace },
  };
  return {
    // Clients before 1.25 know names alone.
    SecurityOptions: atLeast(1, 25)
      ? securityOptions
      : securityOptions.map((option) => option.replace(/^name=([^,]*).*/, '$1')),
    ...(addressPools.length > 0
      ? { DefaultAddressPools: addressPools.map(({ base, size }) => ({ Base: base, Size: size })) }
      : {}),
    ...(atLeast(1, 46) ? { Containerd: containerd } : {}),
    ...(atLeast(1, 49) ? { FirewallBackend: { Driver: settings.firewallBackend } } : {}),
    CDISpecDirs: settings.cdiSpecDirs,
    ...(atLeast(1, 50) && devices.names.length > 0
      ? { DiscoveredDevices: devices.names.map((name) => ({ Source: 'cdi', ID: name })) }
      : {}),
    Warnings: allWarnings.length === 0 ? null : allWarnings,
  };
}

/** Returns a count when the value is a number, else the name of one unit. */
function genericResource(entry: string): unknown {
  const [Kind = '', value = ''] = entry.split('=');
  return /^\d+$/.test(value)
    ? { DiscreteResourceSpec: { Kind, Value: Number(value) } }
    : { NamedResourceSpec: { Kind, Value: value } };
}

/** Shows a proxy URL without its credentials. */
function maskCredentials(url: string): string {
  return url.replace(/^([a-z]+:\/\/)[^@/]*@/i, '$1xxxxx:xxxxx@');
}
