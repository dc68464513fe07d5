/** Options whose effect the test of some other file looks at. */
import type { OptionName } from '../../src/config/options.js';

export interface Place {
  readonly file: string;
  /** How the title of the test begins. */
  readonly title: string;
  readonly options: readonly OptionName[];
}

const place = (file: string, title: string, ...options: readonly OptionName[]): Place => ({ file, title, options });

const NETWORKS: readonly Place[] = [
  place('network/network-flags', 'bip, bip6, fixed-cidr, default-gateway', 'bip', 'bip6', 'fixedCidr', 'fixedCidrV6'),
  place(
    'network/network-flags',
    'bip, bip6, fixed-cidr, default-gateway',
    'defaultGateway',
    'defaultGatewayV6',
    'mtu',
    'ipv6',
  ),
  place('network/network-flags', 'bridge: one that is there is used as it is and stays', 'bridge'),
  place(
    'network/network-flags',
    'default-address-pool and default-network-opt',
    'defaultAddressPools',
    'defaultNetworkOpts',
  ),
  place('network/network-flags', 'dns, dns-search, dns-opt: who is asked, and for what', 'dns', 'dnsOpts', 'dnsSearch'),
  place('network/network-flags', 'host-gateway-ip: what host-gateway stands for', 'hostGatewayIps'),
  place(
    'network/gateway-modes',
    'nat with --allow-direct-routing: besides, the published port of',
    'allowDirectRouting',
  ),
  place('network/network-flags', 'icc and userland-proxy, switched off', 'icc', 'userlandProxy'),
  place('network/network-flags', 'ip: where ports of the default bridge are published that name no address', 'ip'),
  place('network/network-flags', 'bridge: one that is there is used as it is and stays; ip-forward=false', 'ipForward'),
  place('network/network-flags', 'default-address-pool and default-network-opt: ', 'ipForwardNoDrop'),
  place('network/network-flags', 'ip-masq: without it containers leave with their own address', 'ipMasq'),
  place('network/network-flags', 'firewall-backend: nftables writes a table of our own', 'firewallBackend'),
  place('network/network-flags', 'iptables and ip6tables: switched off, no rule is touched', 'iptables', 'ip6tables'),
];

const REGISTRIES: readonly Place[] = [
  place('images/proxies', 'a plain registry is pulled from through the proxy', 'httpProxy', 'insecureRegistries'),
  place('images/proxies', 'a registry with TLS is pulled from through a tunnel', 'httpsProxy'),
  place('images/proxies', 'exceptions and the machine itself are reached without it', 'noProxy'),
  place('images/registries', 'mirrors of a registry that is not the default one are asked first', 'registryMirrorsFor'),
  place('daemon/reload', 'max-concurrent-downloads: so many layers at once', 'maxConcurrentDownloads'),
  place('daemon/reload', 'max-download-attempts: so often, then no more', 'maxDownloadAttempts'),
  place('daemon/reload', 'registry-mirrors: the next pull asks them', 'registryMirrors'),
];

const CLIENTS: readonly Place[] = [
  place('network/addresses', 'addresses of every form are served at once', 'hosts', 'group'),
  place('security/authorization', 'requests are denied by path, by method and by body', 'authorizationPlugins'),
  place('daemon/traces', 'a start is one trace, from the request to the calls of containerd', 'otlpEndpoint'),
  place('daemon/metrics', 'what containers, pulls and requests do is counted', 'metricsAddr'),
  place('security/scoped-sockets', 'what no rule names is denied with a clear message', 'sockets'),
  place('http/tls', 'docker with a certificate works', 'tlsCert', 'tlsKey'),
  place('http/tls', 'who has no good certificate never reaches a handler', 'tlsCaCert', 'tlsVerify'),
  place('http/tls', 'without --tlsverify, --tls serves every client, from 1.0 on when', 'tls', 'tlsMinVersion'),
];

export const ELSEWHERE: readonly Place[] = [
  ...NETWORKS,
  ...REGISTRIES,
  ...CLIENTS,
  place('build/cache', 'builder.gc: rules are shown and applied; builder.history: ', 'builderGc', 'builderHistory'),
  place('build/run', 'builder.entitlements: what the configuration allows', 'builderEntitlements'),
  place('containers/cdi', 'nodes, environment and mounts of a device', 'cdiSpecDirs'),
  place('containers/cdi', 'with the feature switched off there is no such driver', 'features'),
  place('images/garbage', 'the oldest go until', 'imageGcHighPercent', 'imageGcLowPercent', 'imageGcMinAgeSeconds'),
  place('daemon/reload', 'live-restore: containers outlive the daemon', 'liveRestore'),
  place('daemon/reload', 'shutdown-timeout: how long containers may take', 'shutdownTimeoutSeconds'),
  place('security/size-limits', 'a size for all containers stops the start', 'storageOpts'),
  place('daemon/start-up', '--validate: a bad file', 'configFile'),
  place('daemon/start-up', 'a storage driver on the wrong file system', 'storageDriver'),
  place('daemon/start-up', 'rootless without a user namespace', 'rootless'),
  place(
    'daemon/start-up',
    'running: the parent of all containers',
    'cpuRtPeriodMicroseconds',
    'cpuRtRuntimeMicroseconds',
  ),
  place('daemon/start-up', 'the systemd cgroup driver is not available', 'execOpts'),
  place('containers/userns', 'root of a container is nobody on the host', 'usernsRemap'),
];
