/**
 * The facts behind `version` and `info`, from views: no runtime is asked while a client waits. src/http/api makes JSON
 * of them.
 */
import { LOG_DRIVERS } from '../../logs/options/log-options.js';
import { NETWORK_DRIVERS } from '../../network/network-plan.js';
import type { ContainerRecord } from '../container/container.record.js';
import type { ImageStore } from '../../ports/images.js';
import type { LayerStore } from '../../ports/storage.js';
import type { HostInfo } from './host.js';
import type { ProcessFigures } from './process-figures.js';

export interface ComponentVersion {
  readonly name: string;
  readonly version: string;
  readonly commit: string;
}

/** A runtime, with what its entry in the configuration says of it. */
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
  /** The program that writes the firewall's rules: iptables or nftables. */
  readonly firewallBackend: string;
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

/** These facts say which build of the daemon this is. */
export interface BuildFacts {
  readonly version: string;
  readonly engineVersion: string;
  readonly commit: string;
  readonly time: string;
}

export interface VersionFacts {
  readonly build: BuildFacts;
  readonly host: HostInfo;
  readonly experimental: boolean;
  /** Versions of supervisor, runtime and init, as far as they are known. */
  readonly components: readonly ComponentVersion[];
}

export interface SystemFacts {
  readonly engineVersion: string;
  readonly host: HostInfo;
  readonly settings: SystemSettings;
  readonly figures: ProcessFigures;
  readonly components: readonly ComponentVersion[];
  /** A container that waits for its next start counts neither as running nor as paused, as in the metrics. */
  readonly containers: { readonly total: number; readonly running: number; readonly paused: number };
  readonly images: number;
  readonly storage: {
    readonly driver: string;
    /** Rows of `LayerStore.driverStatus`. */
    readonly status: readonly (readonly [string, string])[];
  };
  /** The drivers that can be used, by what they are for. */
  readonly drivers: {
    readonly volume: readonly string[];
    readonly network: readonly string[];
    readonly log: readonly string[];
  };
  readonly eventListeners: number;
  readonly warnings: readonly string[];
  readonly devices: DiscoveredDevices;
}

/** CDI devices that containers can ask for. */
export interface DiscoveredDevices {
  /** Their qualified names, `vendor.com/class=name`, sorted. */
  readonly names: readonly string[];
  /** These sentences tell which specifications were left out, and why. */
  readonly warnings: readonly string[];
}

export interface SystemDeps {
  readonly build: BuildFacts;
  readonly host: HostInfo;
  readonly containers: { list(): readonly ContainerRecord[] };
  readonly images: ImageStore;
  readonly layers: LayerStore;
  readonly settings: () => SystemSettings;
  /** Asks for the versions of supervisor, runtime and init; called once. */
  readonly components: () => Promise<readonly ComponentVersion[]>;
  /** Returns the features that a runtime reports, as JSON; undefined when it reports none. */
  readonly runtimeFeatures: (path: string) => Promise<string | undefined>;
  readonly warnings: () => readonly string[];
  readonly devices: () => Promise<DiscoveredDevices>;
  readonly listeners: () => number;
  readonly figures: () => Promise<ProcessFigures>;
  /** Plugins of other processes that have answered, by what they are for. */
  readonly plugins: { volume(): readonly string[]; network(): readonly string[]; log(): readonly string[] };
}

export class SystemService {
  #components: Promise<readonly ComponentVersion[]> | undefined;

  constructor(private readonly deps: SystemDeps) {}

  async version(): Promise<VersionFacts> {
    const { build, host } = this.deps;
    const { experimental } = this.deps.settings();
    return { build, host, experimental, components: await this.#knownVersions() };
  }

  async info(): Promise<SystemFacts> {
    const { build, host, images, layers, plugins } = this.deps;
    const settings = this.deps.settings();
    const [figures, devices, status] = await Promise.all([
      this.deps.figures(),
      this.deps.devices(),
      layers.driverStatus(),
    ]);
    const components = await this.#knownVersions();
    const records = this.deps.containers.list();
    const count = (status: string): number => records.filter(({ state }) => state.status === status).length;
    return {
      engineVersion: build.engineVersion,
      host,
      settings,
      figures,
      components,
      containers: { total: records.length, running: count('running'), paused: count('paused') },
      images: images.list().length,
      storage: { driver: layers.driver, status },
      drivers: {
        volume: ['local', ...plugins.volume()],
        network: [...NETWORK_DRIVERS, ...plugins.network()],
        log: [...LOG_DRIVERS, ...plugins.log()],
      },
      eventListeners: this.deps.listeners(),
      warnings: this.deps.warnings(),
      devices,
    };
  }

  /** The features that runtimes report, as JSON texts by their names. A runtime that reports none is left out. */
  async runtimeFeatures(): Promise<ReadonlyMap<string, string>> {
    const found = await Promise.all(
      Object.entries(this.deps.settings().runtimes).map(async ([name, { path }]) => {
        const features = path === undefined ? undefined : await this.deps.runtimeFeatures(path);
        return features === undefined ? [] : [[name, features] as const];
      }),
    );
    return new Map(found.flat());
  }

  /** Returns the versions of supervisor, runtime and init; none when the supervisor does not answer. */
  #knownVersions(): Promise<readonly ComponentVersion[]> {
    this.#components ??= this.deps.components().catch((error: unknown) => {
      this.#components = undefined;
      throw error;
    });
    return this.#components.catch(() => []);
  }
}
