/** Answers `version` and `info` from views: no runtime is asked while a client waits. */
import { LOG_DRIVERS } from '../../logs/options/log-options.js';
import type { ContainerRecord } from '../container/container.record.js';
import type { ImageStore } from '../../ports/images.js';
import type { LayerStore } from '../../ports/storage.js';
import type { HostInfo } from './host.js';
import type { ProcessFigures } from './process-figures.js';

export const API_VERSION = '1.49';
export const MIN_API_VERSION = '1.24';

export interface ComponentVersion {
  readonly name: string;
  readonly version: string;
  readonly commit: string;
}

/** As `info` shows it. */
export interface RuntimeInfo {
  readonly path?: string;
  readonly runtimeType?: string;
  readonly runtimeArgs?: readonly string[];
}

/** Settings that may change while the daemon runs. */
export interface SystemSettings {
  readonly id: string;
  readonly dataRoot: string;
  readonly debug: boolean;
  readonly labels: readonly string[];
  readonly authorizationPlugins: readonly string[];
  readonly experimental: boolean;
  readonly liveRestore: boolean;
  readonly defaultRuntime: string;
  readonly runtimes: Readonly<Record<string, RuntimeInfo>>;
  readonly logDriver: string;
  readonly cgroupDriver: string;
  readonly cgroupVersion: '1' | '2';
  readonly registryMirrors: readonly string[];
  readonly insecureCidrs: readonly string[];
  readonly insecureHosts: readonly string[];
  readonly httpProxy: string;
  readonly httpsProxy: string;
  readonly noProxy: string;
  readonly cdiSpecDirs: readonly string[];
  readonly securityOptions: readonly string[];
  readonly supervisorAddress: string;
  readonly supervisorNamespace: string;
  readonly pluginsNamespace: string;
  readonly initBinary: string;
  readonly addressPools: readonly { readonly base: string; readonly size: number }[];
  /** `name=value`, as configured. */
  readonly genericResources: readonly string[];
  /** The kernel can set these limits. */
  readonly limits: {
    readonly memoryLimit: boolean;
    readonly swapLimit: boolean;
    readonly cpuQuota: boolean;
    readonly cpuShares: boolean;
    readonly cpuset: unknown;
    readonly pids: boolean;
    readonly oomKillDisable: boolean;
  };
}

export interface SystemDeps {
  readonly build: {
    readonly version: string;
    readonly engineVersion: string;
    readonly commit: string;
    readonly time: string;
  };
  readonly host: HostInfo;
  readonly containers: { list(): readonly ContainerRecord[] };
  readonly images: ImageStore;
  readonly layers: LayerStore;
  readonly settings: () => SystemSettings;
  /** Versions of supervisor, runtime and init; asked once. */
  readonly components: () => Promise<readonly ComponentVersion[]>;
  /** Returns the features that a runtime reports, as JSON; undefined when it reports none. */
  readonly runtimeFeatures: (path: string) => Promise<string | undefined>;
  readonly warnings: () => readonly string[];
  readonly listeners: () => number;
  readonly figures: () => Promise<ProcessFigures>;
  /** Plugins of other processes that have answered, by what they are for. */
  readonly plugins: { volume(): readonly string[]; network(): readonly string[] };
}

export class SystemService {
  #components: Promise<readonly ComponentVersion[]> | undefined;

  constructor(private readonly deps: SystemDeps) {}

  #versions(): Promise<readonly ComponentVersion[]> {
    this.#components ??= this.deps.components().catch((error: unknown) => {
      this.#components = undefined;
      throw error;
    });
    return this.#components;
  }

  async version(): Promise<unknown> {
    const { build, host } = this.deps;
    const { experimental } = this.deps.settings();
    const others = await this.#versions().catch(() => []);
    const engine = {
      ApiVersion: API_VERSION,
      Arch: host.architecture,
      BuildTime: build.time,
      Experimental: String(experimental),
      GitCommit: build.commit,
      GoVersion: '',
      KernelVersion: host.kernelVersion,
      MinAPIVersion: MIN_API_VERSION,
      Os: 'linux',
    };
    return {
      Platform: { Name: `engined ${build.version}` },
      Components: [
        { Name: 'Engine', Version: build.engineVersion, Details: engine },
        ...others.map(({ name, version, commit }) => ({
          Name: name,
          Version: version,
          Details: { GitCommit: commit },
        })),
      ],
      Version: build.engineVersion,
      ApiVersion: API_VERSION,
      MinAPIVersion: MIN_API_VERSION,
      GitCommit: build.commit,
      // Clients print it; there is no Go in this engine.
      GoVersion: '',
      Os: 'linux',
      Arch: host.architecture,
      KernelVersion: host.kernelVersion,
      ...(experimental ? { Experimental: true } : {}),
      BuildTime: build.time,
    };
  }

  async info(atLeast: (major: number, minor: number) => boolean): Promise<unknown> {
    const { host, images, layers, containers } = this.deps;
    const settings = this.deps.settings();
    const figures = await this.deps.figures();
    const versions = new Map((await this.#versions().catch(() => [])).map((component) => [component.name, component]));
    const records = containers.list();
    const count = (status: string): number => records.filter(({ state }) => state.status === status).length;
    const commit = (name: string): { ID: string; Expected?: string } => {
      const component = versions.get(name);
      // Some distributions build these programs without a commit.
      const id = component?.commit || (component?.version ?? '');
      return atLeast(1, 49) ? { ID: id } : { ID: id, Expected: id };
    };
    const runtimes = atLeast(1, 44) ? await this.#withStatus(settings.runtimes) : settings.runtimes;
    const paused = count('paused');
    // A container that waits for its next start counts as stopped, as in the metrics.
    const running = count('running');
    const warnings = this.deps.warnings();
    return {
      ID: settings.id,
      Containers: records.length,
      ContainersRunning: running,
      ContainersPaused: paused,
      ContainersStopped: records.length - running - paused,
      Images: images.list().length,
      Driver: layers.driver,
      DriverStatus: layers.driverStatus,
      Plugins: {
        Volume: ['local', ...this.deps.plugins.volume()],
        Network: ['bridge', 'host', 'ipvlan', 'macvlan', 'null', ...this.deps.plugins.network()],
        Authorization: settings.authorizationPlugins.length > 0 ? settings.authorizationPlugins : null,
        Log: LOG_DRIVERS,
      },
      MemoryLimit: settings.limits.memoryLimit,
      SwapLimit: settings.limits.swapLimit,
      CpuCfsPeriod: settings.limits.cpuQuota,
      CpuCfsQuota: settings.limits.cpuQuota,
      CPUShares: settings.limits.cpuShares,
      CPUSet: settings.limits.cpuset !== undefined,
      PidsLimit: settings.limits.pids,
      IPv4Forwarding: figures.ipv4Forwarding,
      BridgeNfIptables: host.bridgeNetfilter.iptables,
      BridgeNfIp6tables: host.bridgeNetfilter.ip6tables,
      Debug: settings.debug,
      NFd: figures.fileDescriptors,
      OomKillDisable: settings.limits.oomKillDisable,
      NGoroutines: figures.activities,
      SystemTime: new Date().toISOString(),
      LoggingDriver: settings.logDriver,
      CgroupDriver: settings.cgroupDriver,
      CgroupVersion: settings.cgroupVersion,
      NEventsListener: this.deps.listeners(),
      KernelVersion: host.kernelVersion,
      OperatingSystem: host.operatingSystem,
      OSVersion: host.osVersion,
      OSType: 'linux',
      Architecture: host.machine,
      IndexServerAddress: 'https://index.docker.io/v1/',
      RegistryConfig: {
        ...(atLeast(1, 47)
          ? {}
          : { AllowNondistributableArtifactsCIDRs: [], AllowNondistributableArtifactsHostnames: [] }),
        InsecureRegistryCIDRs: ['::1/128', '127.0.0.0/8', ...settings.insecureCidrs],
        IndexConfigs: {
          'docker.io': { Name: 'docker.io', Mirrors: settings.registryMirrors, Secure: true, Official: true },
          ...Object.fromEntries(
            settings.insecureHosts.map((name) => [name, { Name: name, Mirrors: [], Secure: false, Official: false }]),
          ),
        },
        Mirrors: settings.registryMirrors,
      },
      NCPU: host.cpuCount,
      MemTotal: host.memoryBytes,
      GenericResources: settings.genericResources.length === 0 ? null : settings.genericResources.map(genericResource),
      DockerRootDir: settings.dataRoot,
      HttpProxy: maskCredentials(settings.httpProxy),
      HttpsProxy: maskCredentials(settings.httpsProxy),
      NoProxy: settings.noProxy,
      Name: host.hostname,
      Labels: settings.labels,
      ExperimentalBuild: settings.experimental,
      ServerVersion: this.deps.build.engineVersion,
      Runtimes: runtimes,
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
      ContainerdCommit: commit('containerd'),
      RuncCommit: commit('runc'),
      InitCommit: commit('docker-init'),
      // Clients before 1.25 know names alone.
      SecurityOptions: atLeast(1, 25)
        ? settings.securityOptions
        : settings.securityOptions.map((option) => option.replace(/^name=([^,]*).*/, '$1')),
      ...(settings.addressPools.length > 0
        ? { DefaultAddressPools: settings.addressPools.map(({ base, size }) => ({ Base: base, Size: size })) }
        : {}),
      ...(atLeast(1, 46)
        ? {
            Containerd: {
              Address: settings.supervisorAddress,
              Namespaces: { Containers: settings.supervisorNamespace, Plugins: settings.pluginsNamespace },
            },
          }
        : {}),
      ...(atLeast(1, 49) ? { FirewallBackend: { Driver: 'iptables' } } : {}),
      CDISpecDirs: settings.cdiSpecDirs,
      Warnings: warnings.length === 0 ? null : warnings,
    };
  }

  async #withStatus(runtimes: SystemSettings['runtimes']): Promise<Readonly<Record<string, unknown>>> {
    const entries = Object.entries(runtimes).map(async ([name, runtime]) => {
      const features = runtime.path === undefined ? undefined : await this.deps.runtimeFeatures(runtime.path);
      return [
        name,
        features === undefined
          ? runtime
          : { ...runtime, status: { 'org.opencontainers.runtime-spec.features': features } },
      ] as const;
    });
    return Object.fromEntries(await Promise.all(entries));
  }
}

/** A count when the value is a number, else the name of one unit. */
function genericResource(entry: string): unknown {
  const [Kind = '', value = ''] = entry.split('=');
  return /^\d+$/.test(value)
    ? { DiscreteResourceSpec: { Kind, Value: Number(value) } }
    : { NamedResourceSpec: { Kind, Value: value } };
}

/** Proxy URLs are shown without their credentials. */
function maskCredentials(url: string): string {
  return url.replace(/^([a-z]+:\/\/)[^@/]*@/i, '$1xxxxx:xxxxx@');
}
