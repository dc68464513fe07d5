/** The daemon's configuration, resolved: what the rest of the program reads. */
import type { Ulimit } from '../ports/container.js';

export interface RuntimeEntry {
  readonly path?: string;
  readonly runtimeArgs?: readonly string[];
  readonly runtimeType?: string;
  readonly options?: Readonly<Record<string, unknown>>;
}

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
  readonly metricsAddr: string;
  readonly supervisor: string;
  readonly supervisorNamespace: string;
  readonly supervisorPluginsNamespace: string;
  readonly criSupervisor: boolean;
  readonly storageDriver: string;
  readonly bridge: string;
  readonly bip: string;
  readonly fixedCidr: string;
  readonly defaultGateway: string;
  readonly mtu: number;
  readonly icc: boolean;
  readonly ipMasq: boolean;
  readonly ipForward: boolean;
  readonly ipForwardNoDrop: boolean;
  readonly iptables: boolean;
  readonly ip6tables: boolean;
  readonly ip: string;
  readonly userlandProxy: boolean;
  readonly defaultAddressPools: readonly { readonly base: string; readonly size: number }[];
  readonly dns: readonly string[];
  readonly dnsOpts: readonly string[];
  readonly dnsSearch: readonly string[];
  readonly hostGatewayIps: readonly string[];
  readonly logDriver: string;
  readonly logOpts: Readonly<Record<string, string>>;
  readonly registryMirrors: readonly string[];
  readonly insecureRegistries: readonly string[];
  readonly httpProxy: string;
  readonly httpsProxy: string;
  readonly noProxy: string;
  readonly maxConcurrentDownloads: number;
  readonly maxConcurrentUploads: number;
  readonly maxDownloadAttempts: number;
  readonly defaultRuntime: string;
  readonly runtimes: Readonly<Record<string, RuntimeEntry>>;
  readonly execOpts: readonly string[];
  readonly cgroupParent: string;
  readonly defaultCgroupnsMode: 'host' | 'private' | '';
  readonly defaultIpcMode: 'shareable' | 'private';
  readonly defaultShmSizeBytes: number;
  readonly defaultUlimits: readonly Ulimit[];
  readonly init: boolean;
  readonly initPath: string;
  readonly noNewPrivileges: boolean;
  readonly seccompProfile: string;
  readonly selinuxEnabled: boolean;
  readonly cdiSpecDirs: readonly string[];
}
