/**
 * Every option of the daemon, once. Flags, configuration file, environment, `--help`, validation, reload, the JSON
 * Schema and docs/configuration.md all follow from this table.
 */
import { builderEntitlements, DEFAULT_ENTITLEMENTS } from './builder-entitlements.js';
import { builderGc, type BuilderGc } from './builder-gc.js';
import { builderHistory, DEFAULT_BUILDER_HISTORY } from './builder-history.js';
import { DEFAULT_HOST, parseHost } from './hosts.js';
import { checkCollector, checkDnsOption, checkDnsSearch, checkHostPort, checkInsecureRegistry, checkKeyValue, checkLabel, checkMirror, checkProxyUrl } from './item-checks.js';
import { runtimes } from './runtime-entries.js';
import { scopedSockets } from './scoped-sockets.js';
import { addressPools, gatewayIps, mirrorsByRegistry, networkOptions, ulimits } from './structured-types.js';
import { boolean, bytes, checkCidr, checkIp, integer, list, map, oneOf, seconds, switches, text, type ValueType } from './value-types.js';

export interface Option<T> {
  readonly type: ValueType<T>;
  readonly default: NoInfer<T>;
  /** Long name on the command line. */
  readonly flag?: string;
  readonly short?: string;
  /** Name in the configuration file; members of objects with a dot. */
  readonly key?: string;
  /** Environment variables; the first that is set counts. */
  readonly env?: readonly string[];
  /** The variable counts as true whenever it is not empty. */
  readonly envIsSwitch?: true;
  /** Only `reloadable` sets this, so that the type of the configuration knows it too. */
  readonly reloadable?: true;
  /** The Windows daemon knows it too. */
  readonly windows?: true;
  /** Holds URLs whose user information is a secret. */
  readonly credentials?: true;
  /** Names a file that has to exist when it is set. */
  readonly mustExist?: true;
  readonly unit?: string;
  /** The default in words, where the value alone does not tell it. */
  readonly defaultText?: string;
  readonly doc: string;
}

const option = <T>(definition: Option<T>): Option<T> => definition;
/** A changed value takes effect on reload. */
const reloadable = <T>(definition: Option<T>): Option<T> & { readonly reloadable: true } => ({ ...definition, reloadable: true });
const string = text();
const path = text('string');
const ipv4 = text('ip', (value) => (value === '' ? value : checkIp(value, 4)), { format: 'ipv4' });
const ipv6 = text('ip', (value) => (value === '' ? value : checkIp(value, 6)), { format: 'ipv6' });
const cidr = (family: 4 | 6): ValueType<string> => text('string', (value) => (value === '' ? value : checkCidr(value, family)));
const host = (value: string): string => {
  if (value.trim() !== '') parseHost(value, { tls: false });
  return value.trim();
};
const proxy = text('string', checkProxyUrl);
const none: readonly string[] = [];

export const OPTIONS = {
  allowDirectRouting: option({ flag: 'allow-direct-routing', key: 'allow-direct-routing', type: boolean, default: false, doc: 'Allow remote access to published ports on container IP addresses' }),
  authorizationPlugins: reloadable({
    flag: 'authorization-plugin', key: 'authorization-plugins', type: list(), default: none, windows: true,
    doc: 'Authorization plugins to load, in the order in which they are asked',
  }),
  bip: option({ flag: 'bip', key: 'bip', type: cidr(4), default: '', doc: 'IPv4 address and prefix length of the default bridge' }),
  bip6: option({ flag: 'bip6', key: 'bip6', type: cidr(6), default: '', doc: 'IPv6 address and prefix length of the default bridge' }),
  bridge: option({ flag: 'bridge', short: 'b', key: 'bridge', type: string, default: '', defaultText: 'engine0', windows: true, doc: 'Attach containers to this network bridge; "none" disables the default bridge' }),
  builderEntitlements: option({ key: 'builder.entitlements', type: builderEntitlements, default: DEFAULT_ENTITLEMENTS, defaultText: 'network-host', doc: 'Rights that clients may grant to their builds: network-host, security-insecure' }),
  builderHistory: option({ key: 'builder.history', type: builderHistory, default: DEFAULT_BUILDER_HISTORY, defaultText: '50 builds, 48h', doc: 'Builds that are remembered, for docker buildx history' }),
  builderGc: option<BuilderGc | undefined>({ key: 'builder.gc', type: builderGc as ValueType<BuilderGc | undefined>, default: undefined, doc: 'Garbage collection of the build cache' }),
  cdiSpecDirs: option({ flag: 'cdi-spec-dir', key: 'cdi-spec-dirs', type: list(), default: ['/etc/cdi', '/var/run/cdi'], doc: 'Directories of CDI device specifications' }),
  cgroupParent: option({ flag: 'cgroup-parent', key: 'cgroup-parent', type: string, default: '', defaultText: '/engine, or system.slice with systemd', doc: 'Parent cgroup of all containers' }),
  configFile: option({ flag: 'config-file', type: path, default: '/etc/engine/daemon.json', windows: true, doc: 'Daemon configuration file' }),
  supervisor: option({ flag: 'supervisor', key: 'supervisor', type: string, default: '', defaultText: 'started by the daemon', windows: true, doc: 'Address of the supervisor gRPC endpoint' }),
  supervisorNamespace: option({ flag: 'supervisor-namespace', key: 'supervisor-namespace', type: string, default: 'engine', windows: true, doc: 'Supervisor namespace of containers' }),
  supervisorPluginsNamespace: option({ flag: 'supervisor-plugins-namespace', key: 'supervisor-plugins-namespace', type: string, default: 'plugins.engine', windows: true, doc: 'Supervisor namespace of plugins' }),
  cpuRtPeriodMicroseconds: option({ flag: 'cpu-rt-period', key: 'cpu-rt-period', type: integer({ min: 0 }), default: 0, unit: 'microseconds', doc: 'CPU real-time period of the parent cgroup of all containers (not with cgroup v2)' }),
  cpuRtRuntimeMicroseconds: option({ flag: 'cpu-rt-runtime', key: 'cpu-rt-runtime', type: integer({ min: 0 }), default: 0, unit: 'microseconds', doc: 'CPU real-time runtime of the parent cgroup of all containers (not with cgroup v2)' }),
  criSupervisor: option({ flag: 'cri-supervisor', key: 'cri-supervisor', type: boolean, default: false, doc: 'Start the supervisor with its CRI plugin' }),
  dataRoot: option({ flag: 'data-root', key: 'data-root', type: path, default: '/var/lib/engine', windows: true, doc: 'Root directory of persistent state' }),
  debug: reloadable({
    flag: 'debug', short: 'D', key: 'debug', type: boolean, default: false, windows: true,
    doc: 'Enable debug mode',
  }),
  defaultAddressPools: option({
    flag: 'default-address-pool', key: 'default-address-pools', type: addressPools, default: [],
    doc: 'Address pools of node-local networks, for IPv4 or IPv6; a family without any has the built-in ones',
  }),
  defaultCgroupnsMode: option({ flag: 'default-cgroupns-mode', key: 'default-cgroupns-mode', type: oneOf(['host', 'private']), default: 'private', defaultText: 'private, with cgroup version 1 host', doc: 'Default cgroup namespace mode of containers' }),
  defaultGateway: option({ flag: 'default-gateway', key: 'default-gateway', type: ipv4, default: '', doc: 'Default gateway IPv4 address of the default bridge network' }),
  defaultGatewayV6: option({ flag: 'default-gateway-v6', key: 'default-gateway-v6', type: ipv6, default: '', doc: 'Default gateway IPv6 address of the default bridge network' }),
  defaultIpcMode: option({ flag: 'default-ipc-mode', key: 'default-ipc-mode', type: oneOf(['shareable', 'private']), default: 'private', doc: 'Default IPC mode of containers' }),
  defaultNetworkOpts: option({ flag: 'default-network-opt', key: 'default-network-opts', type: networkOptions, default: {}, windows: true, doc: 'Default options of new networks, by network driver' }),
  defaultRuntime: reloadable({
    flag: 'default-runtime', key: 'default-runtime', type: string, default: 'runc', windows: true,
    doc: 'Default OCI runtime of containers: a registered name or a fully qualified shim name',
  }),
  defaultShmSizeBytes: option({ flag: 'default-shm-size', key: 'default-shm-size', type: bytes, default: 64 * 1024 * 1024, defaultText: '64MiB', unit: 'bytes', doc: 'Default shared memory size of containers' }),
  defaultUlimits: option({ flag: 'default-ulimit', key: 'default-ulimits', type: ulimits, default: {}, windows: true, doc: 'Default ulimits of containers' }),
  dns: option({ flag: 'dns', key: 'dns', type: list('list', (value) => checkIp(value)), default: none, windows: true, doc: 'DNS servers of all containers' }),
  dnsOpts: option({
    flag: 'dns-opt', key: 'dns-opts', type: list('list', checkDnsOption), default: none, windows: true,
    doc: 'DNS options',
  }),
  dnsSearch: option({ flag: 'dns-search', key: 'dns-search', type: list('list', checkDnsSearch), default: none, windows: true, doc: 'DNS search domains' }),
  execOpts: option({ flag: 'exec-opt', key: 'exec-opts', type: list('list', checkKeyValue), default: none, windows: true, doc: 'Runtime execution options' }),
  execRoot: option({ flag: 'exec-root', key: 'exec-root', type: path, default: '/var/run/engine', doc: 'Root directory of execution state files' }),
  experimental: option({ flag: 'experimental', key: 'experimental', type: boolean, default: false, windows: true, doc: 'Enable experimental features' }),
  features: reloadable({
    flag: 'feature', key: 'features', type: switches, default: {}, windows: true,
    doc: 'Enable or disable features of the daemon',
  }),
  firewallBackend: option<'' | 'iptables' | 'nftables'>({
    flag: 'firewall-backend', key: 'firewall-backend', type: oneOf(['', 'iptables', 'nftables']), default: '',
    defaultText: 'iptables, or nftables where that alone is installed',
    doc: 'Program that writes the firewall rules of networks: iptables or nftables',
  }),
  fixedCidr: option({ flag: 'fixed-cidr', key: 'fixed-cidr', type: cidr(4), default: '', windows: true, doc: 'IPv4 subnet of the default bridge network' }),
  fixedCidrV6: option({ flag: 'fixed-cidr-v6', key: 'fixed-cidr-v6', type: cidr(6), default: '', doc: 'IPv6 subnet of the default bridge network' }),
  group: option({ flag: 'group', short: 'G', key: 'group', type: string, default: 'engine', windows: true, doc: 'Group that owns the unix socket' }),
  hosts: option({ flag: 'host', short: 'H', key: 'hosts', type: list('list', host), default: none, defaultText: DEFAULT_HOST, windows: true, doc: 'Sockets to listen on' }),
  hostGatewayIps: option({ flag: 'host-gateway-ip', key: 'host-gateway-ips', type: gatewayIps, default: none, defaultText: 'addresses of the default bridge', windows: true, doc: 'IP addresses that "host-gateway" of the add-host option stands for' }),
  httpProxy: option({ flag: 'http-proxy', key: 'proxies.http-proxy', type: proxy, default: '', env: ['HTTP_PROXY', 'http_proxy'], credentials: true, doc: 'Proxy for outgoing HTTP traffic of the daemon' }),
  httpsProxy: option({ flag: 'https-proxy', key: 'proxies.https-proxy', type: proxy, default: '', env: ['HTTPS_PROXY', 'https_proxy'], credentials: true, doc: 'Proxy for outgoing HTTPS traffic of the daemon' }),
  icc: option({ flag: 'icc', key: 'icc', type: boolean, default: true, doc: 'Let containers of the default bridge network reach each other' }),
  init: option({ flag: 'init', key: 'init', type: boolean, default: false, doc: 'Run an init process in containers that forwards signals and reaps processes' }),
  initPath: option({ flag: 'init-path', key: 'init-path', type: path, default: '', mustExist: true, doc: 'Path of the init binary' }),
  insecureRegistries: reloadable({
    flag: 'insecure-registry', key: 'insecure-registries',
    type: list('list', checkInsecureRegistry),
    default: none, windows: true,
    doc: 'Registries that may use plain HTTP or an unknown certificate authority: <host>:<port> or a CIDR',
  }),
  ip: option({ flag: 'ip', key: 'ip', type: text('ip', (value) => checkIp(value)), default: '0.0.0.0', doc: 'Host IP address that ports of the default bridge network are published on' }),
  ipForward: option({ flag: 'ip-forward', key: 'ip-forward', type: boolean, default: true, doc: 'Enable IP forwarding in the system configuration' }),
  ipForwardNoDrop: option({ flag: 'ip-forward-no-drop', key: 'ip-forward-no-drop', type: boolean, default: false, doc: 'Leave the policy of filter-FORWARD alone when enabling IP forwarding' }),
  ipMasq: option({ flag: 'ip-masq', key: 'ip-masq', type: boolean, default: true, doc: 'IP masquerading for the default bridge network' }),
  ip6tables: option({ flag: 'ip6tables', key: 'ip6tables', type: boolean, default: true, doc: 'Add ip6tables rules' }),
  iptables: option({ flag: 'iptables', key: 'iptables', type: boolean, default: true, doc: 'Add iptables rules' }),
  ipv6: option({ flag: 'ipv6', key: 'ipv6', type: boolean, default: false, doc: 'IPv6 networking for the default bridge network' }),
  labels: reloadable({
    flag: 'label', key: 'labels', type: list('list', checkLabel), default: none, windows: true,
    doc: 'Labels of the daemon, key=value',
  }),
  liveRestore: reloadable({
    flag: 'live-restore', key: 'live-restore', type: boolean, default: false,
    doc: 'Keep containers running while the daemon is down',
  }),
  logDriver: option({ flag: 'log-driver', key: 'log-driver', type: string, default: 'json-file', windows: true, doc: 'Default log driver of containers' }),
  logFormat: option({ flag: 'log-format', key: 'log-format', type: oneOf(['text', 'json'], (value) => `invalid log format: ${value}`), default: 'text', windows: true, doc: "Format of the daemon's own log" }),
  logLevel: option({ flag: 'log-level', short: 'l', key: 'log-level', type: oneOf(['debug', 'info', 'warn', 'error', 'fatal'], (value) => `invalid logging level: ${value}`), default: 'info', windows: true, doc: "Level of the daemon's own log" }),
  logOpts: option({ flag: 'log-opt', key: 'log-opts', type: map, default: {}, doc: 'Default options of the log driver of containers' }),
  imageGcHighPercent: option({ flag: 'image-gc-high-percent', key: 'image-gc-high-percent', type: integer({ min: 0, max: 99 }), default: 0, unit: 'percent', doc: 'Remove unused images when this much of the file system of the data root is in use; 0: never' }),
  imageGcLowPercent: option({ flag: 'image-gc-low-percent', key: 'image-gc-low-percent', type: integer({ min: 0, max: 99 }), default: 70, unit: 'percent', doc: 'How much may still be in use after unused images were removed' }),
  imageGcMinAgeSeconds: option({ flag: 'image-gc-min-age', key: 'image-gc-min-age', type: seconds, default: 120, unit: 'seconds', doc: 'Keep images that were used since' }),
  maxConcurrentDownloads: reloadable({
    flag: 'max-concurrent-downloads', key: 'max-concurrent-downloads',
    type: integer({ min: 0, message: (value) => `invalid max concurrent downloads: ${value}` }),
    default: 3, windows: true,
    doc: 'Concurrent downloads of a pull; 0: no limit',
  }),
  maxConcurrentUploads: reloadable({
    flag: 'max-concurrent-uploads', key: 'max-concurrent-uploads',
    type: integer({ min: 0, message: (value) => `invalid max concurrent uploads: ${value}` }),
    default: 5, windows: true,
    doc: 'Concurrent uploads of a push; 0: no limit',
  }),
  maxDownloadAttempts: reloadable({
    flag: 'max-download-attempts', key: 'max-download-attempts',
    type: integer({ min: 1, message: (value) => `invalid max download attempts: ${value}` }),
    default: 5, windows: true,
    doc: 'Download attempts of a pull',
  }),
  metricsAddr: option({ flag: 'metrics-addr', key: 'metrics-addr', type: text('string', checkHostPort), default: '', doc: 'Address that serves the metrics, host:port' }),
  mtu: option({
    flag: 'mtu', key: 'mtu',
    type: integer({ min: 68, max: 65_535, message: (value) => `invalid default MTU: ${value}: must be from 68 to 65535` }),
    default: 1500, windows: true, unit: 'bytes',
    doc: 'MTU of the default bridge network',
  }),
  networkControlPlaneMtu: option({ flag: 'network-control-plane-mtu', key: 'network-control-plane-mtu', type: integer({ min: 500, message: (value) => `invalid network control plane MTU: ${value}` }), default: 1500, unit: 'bytes', doc: 'Network control plane MTU' }),
  noNewPrivileges: option({ flag: 'no-new-privileges', key: 'no-new-privileges', type: boolean, default: false, doc: 'Set no-new-privileges on new containers' }),
  noProxy: option({ flag: 'no-proxy', key: 'proxies.no-proxy', type: string, default: '', env: ['NO_PROXY', 'no_proxy'], doc: 'Hosts and addresses, separated by commas, that are reached without a proxy' }),
  nodeGenericResources: option({ flag: 'node-generic-resource', key: 'node-generic-resources', type: list('list', checkKeyValue), default: none, doc: 'Resources of the node to advertise, name=value' }),
  otlpEndpoint: option({ flag: 'otlp-endpoint', key: 'otlp-endpoint', type: text('string', checkCollector), default: '', env: ['OTEL_EXPORTER_OTLP_ENDPOINT'], credentials: true, doc: 'Collector of OpenTelemetry that gets traces of requests, as http://HOST:4318' }),
  pidfile: option({ flag: 'pidfile', short: 'p', key: 'pidfile', type: path, default: '/var/run/engine.pid', windows: true, doc: 'File with the process id of the daemon' }),
  rawLogs: option({ flag: 'raw-logs', key: 'raw-logs', type: boolean, default: false, windows: true, doc: 'Full timestamps without colours' }),
  registryMirrors: reloadable({
    flag: 'registry-mirror', key: 'registry-mirrors', type: list('list', checkMirror), default: none, windows: true,
    doc: 'Preferred registry mirrors',
  }),
  registryMirrorsFor: reloadable({
    key: 'registry-mirrors-for', type: mirrorsByRegistry, default: {},
    doc: 'Mirrors of registries other than the default one, by host[:port]',
  }),
  rootless: option({ flag: 'rootless', key: 'rootless', type: boolean, default: false, doc: 'Rootless mode, in a user namespace made by a launcher' }),
  runtimes: reloadable({
    flag: 'add-runtime', key: 'runtimes', type: runtimes, default: {},
    doc: 'Register an additional OCI-compatible runtime, name=path',
  }),
  seccompProfile: option({
    flag: 'seccomp-profile', key: 'seccomp-profile',
    type: text('string', (value) => value || 'builtin'),
    default: 'builtin',
    doc: 'Path of the default seccomp profile; "unconfined" disables it',
  }),
  selinuxEnabled: option({ flag: 'selinux-enabled', key: 'selinux-enabled', type: boolean, default: false, doc: 'Enable SELinux support' }),
  sockets: option({ key: 'sockets', type: scopedSockets, default: [], doc: 'More sockets to listen on, each of which serves only what its rules allow' }),
  shutdownTimeoutSeconds: reloadable({
    flag: 'shutdown-timeout', key: 'shutdown-timeout', type: seconds, default: 15, windows: true, unit: 'seconds',
    doc: 'Time that containers get to stop when the daemon shuts down; negative: any',
  }),
  storageDriver: option({ flag: 'storage-driver', short: 's', key: 'storage-driver', type: string, default: '', env: ['ENGINE_DRIVER'], defaultText: 'the one that has data, else one that works', windows: true, doc: 'Storage driver: overlay2, btrfs, zfs or fuse-overlayfs; with the feature supervisor-snapshotter: snapshotter' }),
  storageOpts: option({ flag: 'storage-opt', key: 'storage-opts', type: list('list', checkKeyValue), default: none, windows: true, doc: 'Storage driver options: overlay2.size, btrfs.min_space, zfs.fsname' }),
  swarmDefaultAdvertiseAddr: option({ flag: 'swarm-default-advertise-addr', key: 'swarm-default-advertise-addr', type: string, default: '', windows: true, doc: 'Default address or interface that the cluster is told' }),
  tls: option({ flag: 'tls', key: 'tls', type: boolean, default: false, doc: 'Use TLS; implied by --tlsverify' }),
  tlsCaCert: option({ flag: 'tlscacert', key: 'tlscacert', type: path, default: '', defaultText: '~/.engine/ca.pem', windows: true, doc: 'Trust only certificates signed by this CA' }),
  tlsCert: option({ flag: 'tlscert', key: 'tlscert', type: path, default: '', defaultText: '~/.engine/cert.pem', windows: true, doc: 'TLS certificate file' }),
  tlsKey: option({ flag: 'tlskey', key: 'tlskey', type: path, default: '', defaultText: '~/.engine/key.pem', windows: true, doc: 'TLS key file' }),
  tlsMinVersion: option<'1.0' | '1.1' | '1.2' | '1.3'>({ key: 'tls-min-version', type: oneOf(['1.0', '1.1', '1.2', '1.3']), default: '1.2', doc: 'Oldest version of TLS that clients may use' }),
  tlsVerify: option({ flag: 'tlsverify', key: 'tlsverify', type: boolean, default: false, env: ['ENGINE_TLS_VERIFY'], envIsSwitch: true, windows: true, doc: 'Use TLS and verify the remote' }),
  userlandProxy: option({ flag: 'userland-proxy', key: 'userland-proxy', type: boolean, default: true, doc: 'Userland proxy for loopback traffic' }),
  userlandProxyPath: option({ flag: 'userland-proxy-path', key: 'userland-proxy-path', type: path, default: '', mustExist: true, doc: 'Path of the userland proxy binary' }),
  usernsRemap: option({ flag: 'userns-remap', key: 'userns-remap', type: string, default: '', doc: 'Whose subordinate ids containers have as theirs: default, USER[:GROUP] by name or id, or auto for ids of its own for each; see user-namespaces.md' }),
  // This option comes from the environment only.
  certPath: option({ type: path, default: '', env: ['ENGINE_CERT_PATH'], defaultText: '~/.engine', windows: true, doc: 'Directory of the TLS files that are not named one by one' }),
  tmpDir: option({
    type: path, default: '', env: ['ENGINE_TMPDIR'], defaultText: 'tmp in the data root', windows: true,
    doc: 'Directory of temporary files: archives that are imported, downloads that broke off',
  }),
  noPivotRoot: option({ type: boolean, default: false, env: ['ENGINE_RAMDISK'], envIsSwitch: true, doc: 'Do not use pivot_root' }),
  disablePigz: option({
    type: boolean, default: false, env: ['ENGINE_DISABLE_PIGZ'], envIsSwitch: true,
    doc: 'No parallel decompressor of layers',
  }),
};

export type OptionName = keyof typeof OPTIONS;
type ValueOf<O> = O extends Option<infer T> ? T : never;
/** A value for each option. */
export type Values = { readonly [Name in OptionName]: ValueOf<(typeof OPTIONS)[Name]> };

export interface NamedOption extends Option<unknown> {
  readonly name: OptionName;
  /** Name of the option in messages: the file's key, else the flag or the variable. */
  readonly title: string;
}

/** All options by the name that messages use. */
export const OPTION_LIST: readonly NamedOption[] = (Object.entries(OPTIONS) as [OptionName, Option<unknown>][]).map(([name, definition]) => ({
  ...definition,
  name,
  title: definition.key ?? definition.flag ?? definition.env?.[0] ?? name,
}));
