/** The daemon's configuration, resolved: what the rest of the program reads. */
import type { Ulimit } from '../ports/container.js';
import type { CgroupDriver } from './cgroup-driver.js';
import type { ScopedSocket } from './scoped-sockets.js';

export interface RuntimeEntry {
  readonly path?: string;
  readonly runtimeArgs?: readonly string[];
  readonly runtimeType?: string;
  readonly options?: Readonly<Record<string, unknown>>;
}

export interface AddressPool {
  readonly base: string;
  /** Prefix length of the networks cut from it. */
  readonly size: number;
}

export interface BuilderGc {
  readonly enabled: boolean;
  /** 0: not said. */
  readonly defaultKeepStorageBytes: number;
  readonly policy: readonly { readonly keepStorageBytes: number; readonly filter: readonly string[]; readonly all: boolean }[];
}

/** Frozen, through and through. Strings are '' and lists empty where nothing was said and there is no default. */
export interface Config {
  readonly configFile: string;
  readonly hosts: readonly string[];
  readonly dataRoot: string;
  readonly execRoot: string;
  readonly pidfile: string;
  readonly group: string;
  /** True when the operator named the group: then it must exist. */
  readonly groupNamed: boolean;
  readonly debug: boolean;
  readonly logLevel: 'debug' | 'info' | 'warn' | 'error' | 'fatal';
  readonly logFormat: 'text' | 'json';
  readonly rawLogs: boolean;
  readonly labels: readonly string[];
  readonly experimental: boolean;
  readonly features: Readonly<Record<string, boolean>>;
  readonly liveRestore: boolean;
  readonly shutdownTimeoutSeconds: number;
  /** `host:port`. */
  readonly metricsAddr: string;
  readonly rootless: boolean;

  readonly supervisor: string;
  readonly supervisorNamespace: string;
  readonly supervisorPluginsNamespace: string;
  readonly criSupervisor: boolean;

  readonly tls: boolean;
  readonly tlsVerify: boolean;
  /** True when the operator said whether TLS is used or verified, be it that it is not. */
  readonly tlsNamed: boolean;
  readonly tlsCaCert: string;
  readonly tlsCert: string;
  readonly tlsKey: string;
  readonly tlsMinVersion: '1.0' | '1.1' | '1.2' | '1.3';
  readonly authorizationPlugins: readonly string[];
  readonly sockets: readonly ScopedSocket[];

  readonly storageDriver: string;
  readonly storageOpts: readonly string[];
  readonly builderGc: BuilderGc | undefined;
  /** Percent of the file system of the data root; 0: off. */
  readonly imageGcHighPercent: number;
  readonly imageGcLowPercent: number;
  readonly imageGcMinAgeSeconds: number;

  readonly bridge: string;
  readonly bip: string;
  readonly bip6: string;
  readonly fixedCidr: string;
  readonly fixedCidrV6: string;
  readonly defaultGateway: string;
  readonly defaultGatewayV6: string;
  readonly defaultNetworkOpts: Readonly<Record<string, Readonly<Record<string, string>>>>;
  readonly mtu: number;
  readonly networkControlPlaneMtu: number;
  readonly icc: boolean;
  readonly ipv6: boolean;
  readonly ipMasq: boolean;
  readonly ipForward: boolean;
  readonly ipForwardNoDrop: boolean;
  readonly iptables: boolean;
  readonly ip6tables: boolean;
  readonly ip: string;
  readonly userlandProxy: boolean;
  readonly userlandProxyPath: string;
  readonly defaultAddressPools: readonly AddressPool[];
  readonly dns: readonly string[];
  readonly dnsOpts: readonly string[];
  readonly dnsSearch: readonly string[];
  readonly hostGatewayIps: readonly string[];
  readonly swarmDefaultAdvertiseAddr: string;
  /** `key=value`. */
  readonly nodeGenericResources: readonly string[];

  readonly logDriver: string;
  readonly logOpts: Readonly<Record<string, string>>;

  readonly registryMirrors: readonly string[];
  /** Of other registries, by domain. */
  readonly registryMirrorsFor: Readonly<Record<string, readonly string[]>>;
  readonly insecureRegistries: readonly string[];
  readonly httpProxy: string;
  readonly httpsProxy: string;
  readonly noProxy: string;
  readonly maxConcurrentDownloads: number;
  readonly maxConcurrentUploads: number;
  readonly maxDownloadAttempts: number;

  readonly defaultRuntime: string;
  /** Those that the operator registered; `runc` is always there besides. */
  readonly runtimes: Readonly<Record<string, RuntimeEntry>>;
  readonly execOpts: readonly string[];
  /** In effect, be it that the host decided. */
  readonly cgroupDriver: CgroupDriver;
  readonly cgroupParent: string;
  readonly cpuRtPeriodMicroseconds: number;
  readonly cpuRtRuntimeMicroseconds: number;
  readonly defaultCgroupnsMode: 'host' | 'private' | '';
  readonly defaultIpcMode: 'shareable' | 'private';
  readonly defaultShmSizeBytes: number;
  readonly defaultUlimits: readonly Ulimit[];
  readonly init: boolean;
  readonly initPath: string;
  readonly noNewPrivileges: boolean;
  readonly seccompProfile: string;
  readonly selinuxEnabled: boolean;
  readonly usernsRemap: string;
  readonly cdiSpecDirs: readonly string[];

  /** Directory of temporary files; '': below the data root. */
  readonly tmpDir: string;
  readonly noPivotRoot: boolean;
  readonly disablePigz: boolean;
}
