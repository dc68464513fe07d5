/** Checks each option as a flag, in the file, and in everything that is made of the table: help, schema, view. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { Config } from './config.js';
import { helpText } from './help.js';
import { configSchema } from './json-schema.js';
import { OPTION_LIST } from './options.js';
import { configView } from './view.js';
import { load, refused } from '../../test/support/configurations.js';

/**
 * Flag, key of the file, a value as both spell it, and the result: the table of the specification, written down once
 * more.
 */
const TABLE: readonly (readonly [
  flag: string | undefined,
  key: string | undefined,
  flagValues: readonly string[],
  fileValue: unknown,
  name: keyof Config | undefined,
  expected: unknown,
])[] = [
  [
    'add-runtime',
    'runtimes',
    ['a=/x', 'b=y'],
    { a: { path: '/x' }, b: { path: 'y' } },
    'runtimes',
    { a: { path: '/x' }, b: { path: 'y' } },
  ],
  ['allow-direct-routing', 'allow-direct-routing', ['true'], true, 'allowDirectRouting', true],
  ['authorization-plugin', 'authorization-plugins', ['p', 'q'], ['p', 'q'], 'authorizationPlugins', ['p', 'q']],
  ['bip', 'bip', ['10.1.0.1/24'], '10.1.0.1/24', 'bip', '10.1.0.1/24'],
  ['bip6', 'bip6', ['fd00::1/64'], 'fd00::1/64', 'bip6', 'fd00::1/64'],
  ['bridge', 'bridge', ['br0'], 'br0', 'bridge', 'br0'],
  ['cdi-spec-dir', 'cdi-spec-dirs', ['/a'], ['/a'], 'cdiSpecDirs', ['/a']],
  ['cgroup-parent', 'cgroup-parent', ['/p'], '/p', 'cgroupParent', '/p'],
  ['supervisor', 'supervisor', ['/s.sock'], '/s.sock', 'supervisor', '/s.sock'],
  ['supervisor-namespace', 'supervisor-namespace', ['n'], 'n', 'supervisorNamespace', 'n'],
  ['supervisor-plugins-namespace', 'supervisor-plugins-namespace', ['n'], 'n', 'supervisorPluginsNamespace', 'n'],
  ['cpu-rt-period', 'cpu-rt-period', ['5'], 5, 'cpuRtPeriodMicroseconds', 5],
  ['cpu-rt-runtime', 'cpu-rt-runtime', ['5'], 5, 'cpuRtRuntimeMicroseconds', 5],
  ['cri-supervisor', 'cri-supervisor', ['true'], true, 'criSupervisor', true],
  ['data-root', 'data-root', ['/d'], '/d', 'dataRoot', '/d'],
  ['debug', 'debug', ['true'], true, 'debug', true],
  [
    'default-address-pool',
    'default-address-pools',
    ['base=10.0.0.0/8,size=24'],
    [{ base: '10.0.0.0/8', size: 24 }],
    'defaultAddressPools',
    [{ base: '10.0.0.0/8', size: 24 }],
  ],
  ['default-cgroupns-mode', 'default-cgroupns-mode', ['host'], 'host', 'defaultCgroupnsMode', 'host'],
  ['default-gateway', 'default-gateway', ['10.0.0.1'], '10.0.0.1', 'defaultGateway', '10.0.0.1'],
  ['default-gateway-v6', 'default-gateway-v6', ['fd00::1'], 'fd00::1', 'defaultGatewayV6', 'fd00::1'],
  ['default-ipc-mode', 'default-ipc-mode', ['shareable'], 'shareable', 'defaultIpcMode', 'shareable'],
  [
    'default-network-opt',
    'default-network-opts',
    ['bridge=a=b', 'bridge=c=d=e'],
    { bridge: { a: 'b', c: 'd=e' } },
    'defaultNetworkOpts',
    { bridge: { a: 'b', c: 'd=e' } },
  ],
  ['default-runtime', 'default-runtime', ['io.x.y.v1'], 'io.x.y.v1', 'defaultRuntime', 'io.x.y.v1'],
  ['default-shm-size', 'default-shm-size', ['1g'], '1g', 'defaultShmSizeBytes', 2 ** 30],
  [
    'default-ulimit',
    'default-ulimits',
    ['nofile=1:2', 'core=-1'],
    { nofile: { Name: 'nofile', Soft: 1, Hard: 2 }, core: { Soft: -1, Hard: -1 } },
    'defaultUlimits',
    [
      { Name: 'nofile', Soft: 1, Hard: 2 },
      { Name: 'core', Soft: -1, Hard: -1 },
    ],
  ],
  ['dns', 'dns', ['1.1.1.1', '::1'], ['1.1.1.1', '::1'], 'dns', ['1.1.1.1', '::1']],
  ['dns-opt', 'dns-opts', ['ndots:1'], ['ndots:1'], 'dnsOpts', ['ndots:1']],
  ['dns-search', 'dns-search', ['a.b'], ['a.b'], 'dnsSearch', ['a.b']],
  [
    'exec-opt',
    'exec-opts',
    ['native.cgroupdriver=cgroupfs'],
    ['native.cgroupdriver=cgroupfs'],
    'cgroupDriver',
    'cgroupfs',
  ],
  ['exec-root', 'exec-root', ['/e'], '/e', 'execRoot', '/e'],
  ['experimental', 'experimental', ['true'], true, 'experimental', true],
  ['feature', 'features', ['cdi', 'audit=false'], { cdi: true, audit: false }, 'features', { cdi: true, audit: false }],
  ['firewall-backend', 'firewall-backend', ['nftables'], 'nftables', 'firewallBackend', 'nftables'],
  ['fixed-cidr', 'fixed-cidr', ['10.1.0.0/25'], '10.1.0.0/25', 'fixedCidr', '10.1.0.0/25'],
  ['fixed-cidr-v6', 'fixed-cidr-v6', ['fd00::/64'], 'fd00::/64', 'fixedCidrV6', 'fd00::/64'],
  ['group', 'group', ['g'], 'g', 'group', 'g'],
  ['host', 'hosts', ['unix:///x', ':1234'], ['unix:///x', ':1234'], 'hosts', ['unix:///x', ':1234']],
  [
    'host-gateway-ip',
    'host-gateway-ips',
    ['1.2.3.4', 'fd00::1'],
    ['1.2.3.4', 'fd00::1'],
    'hostGatewayIps',
    ['1.2.3.4', 'fd00::1'],
  ],
  ['http-proxy', 'proxies.http-proxy', ['http://p:1'], 'http://p:1', 'httpProxy', 'http://p:1'],
  ['https-proxy', 'proxies.https-proxy', ['http://p:1'], 'http://p:1', 'httpsProxy', 'http://p:1'],
  ['icc', 'icc', ['false'], false, 'icc', false],
  ['image-gc-high-percent', 'image-gc-high-percent', ['90'], 90, 'imageGcHighPercent', 90],
  ['image-gc-low-percent', 'image-gc-low-percent', ['60'], 60, 'imageGcLowPercent', 60],
  ['image-gc-min-age', 'image-gc-min-age', ['10m'], 600, 'imageGcMinAgeSeconds', 600],
  ['init', 'init', ['true'], true, 'init', true],
  ['init-path', 'init-path', ['/bin/sh'], '/bin/sh', 'initPath', '/bin/sh'],
  [
    'insecure-registry',
    'insecure-registries',
    ['http://r:5000', '10.0.0.0/8'],
    ['HTTPS://r:5000', '10.0.0.0/8'],
    'insecureRegistries',
    ['r:5000', '10.0.0.0/8'],
  ],
  ['ip', 'ip', ['127.0.0.1'], '127.0.0.1', 'ip', '127.0.0.1'],
  ['ip-forward', 'ip-forward', ['false'], false, 'ipForward', false],
  ['ip-forward-no-drop', 'ip-forward-no-drop', ['true'], true, 'ipForwardNoDrop', true],
  ['ip-masq', 'ip-masq', ['false'], false, 'ipMasq', false],
  ['ip6tables', 'ip6tables', ['false'], false, 'ip6tables', false],
  ['iptables', 'iptables', ['false'], false, 'iptables', false],
  ['ipv6', 'ipv6', ['true'], true, 'ipv6', true],
  ['label', 'labels', ['a=b', 'c='], ['a=b', 'c='], 'labels', ['a=b', 'c=']],
  ['live-restore', 'live-restore', ['true'], true, 'liveRestore', true],
  ['log-driver', 'log-driver', ['local'], 'local', 'logDriver', 'local'],
  ['log-format', 'log-format', ['json'], 'json', 'logFormat', 'json'],
  ['log-level', 'log-level', ['debug'], 'debug', 'logLevel', 'debug'],
  [
    'log-opt',
    'log-opts',
    ['max-size=1m', 'tag=a=b'],
    { 'max-size': '1m', tag: 'a=b' },
    'logOpts',
    { 'max-size': '1m', tag: 'a=b' },
  ],
  ['max-concurrent-downloads', 'max-concurrent-downloads', ['7'], 7, 'maxConcurrentDownloads', 7],
  ['max-concurrent-uploads', 'max-concurrent-uploads', ['7'], 7, 'maxConcurrentUploads', 7],
  ['max-download-attempts', 'max-download-attempts', ['7'], 7, 'maxDownloadAttempts', 7],
  ['metrics-addr', 'metrics-addr', ['127.0.0.1:9323'], '127.0.0.1:9323', 'metricsAddr', '127.0.0.1:9323'],
  ['mtu', 'mtu', ['1400'], 1400, 'mtu', 1400],
  ['network-control-plane-mtu', 'network-control-plane-mtu', ['1400'], 1400, 'networkControlPlaneMtu', 1400],
  ['no-new-privileges', 'no-new-privileges', ['true'], true, 'noNewPrivileges', true],
  ['no-proxy', 'proxies.no-proxy', ['a,b'], 'a,b', 'noProxy', 'a,b'],
  [
    'node-generic-resource',
    'node-generic-resources',
    ['g=1', 'g=2'],
    ['g=1', 'g=2'],
    'nodeGenericResources',
    ['g=1', 'g=2'],
  ],
  ['otlp-endpoint', 'otlp-endpoint', ['http://c:4318'], 'http://c:4318', 'otlpEndpoint', 'http://c:4318'],
  ['pidfile', 'pidfile', ['/p'], '/p', 'pidfile', '/p'],
  ['raw-logs', 'raw-logs', ['true'], true, 'rawLogs', true],
  ['registry-mirror', 'registry-mirrors', ['https://m'], ['https://m'], 'registryMirrors', ['https://m/']],
  ['rootless', 'rootless', ['true'], true, 'rootless', true],
  ['seccomp-profile', 'seccomp-profile', ['unconfined'], 'unconfined', 'seccompProfile', 'unconfined'],
  ['selinux-enabled', 'selinux-enabled', ['true'], true, 'selinuxEnabled', true],
  ['shutdown-timeout', 'shutdown-timeout', ['30'], 30, 'shutdownTimeoutSeconds', 30],
  ['storage-driver', 'storage-driver', ['overlay2'], 'overlay2', 'storageDriver', 'overlay2'],
  ['storage-opt', 'storage-opts', ['overlay2.size=10G'], ['overlay2.size=10G'], 'storageOpts', ['overlay2.size=10G']],
  [
    'swarm-default-advertise-addr',
    'swarm-default-advertise-addr',
    ['eth0'],
    'eth0',
    'swarmDefaultAdvertiseAddr',
    'eth0',
  ],
  ['tls', 'tls', ['true'], true, 'tls', true],
  ['tlsverify', 'tlsverify', ['true'], true, 'tlsVerify', true],
  ['tlscacert', 'tlscacert', ['/c'], '/c', 'tlsCaCert', '/c'],
  ['tlscert', 'tlscert', ['/c'], '/c', 'tlsCert', '/c'],
  ['tlskey', 'tlskey', ['/c'], '/c', 'tlsKey', '/c'],
  ['userland-proxy', 'userland-proxy', ['false'], false, 'userlandProxy', false],
  ['userland-proxy-path', 'userland-proxy-path', ['/bin/sh'], '/bin/sh', 'userlandProxyPath', '/bin/sh'],
  ['userns-remap', 'userns-remap', ['default'], 'default', 'usernsRemap', 'default'],
];

function nested(key: string, value: unknown): Record<string, unknown> {
  const [group = '', member] = key.split('.');
  return member === undefined ? { [group]: value } : { [group]: { [member]: value } };
}

for (const [flag = '', key = '', flagValues, fileValue, name, expected] of TABLE) {
  test(`${flag}: flag, file, conflict, help, schema, view`, () => {
    if (name === undefined) return;
    const spaced = flagValues.flatMap((value) =>
      typeof fileValue === 'boolean' ? [`--${flag}=${value}`] : [`--${flag}`, value],
    );
    // This setting must be given together with the tested one.
    const beside = name === 'metricsAddr' ? { experimental: true } : {};
    assert.deepEqual(load(beside, spaced).config[name], expected);
    assert.deepEqual(
      load(
        beside,
        flagValues.map((value) => `--${flag}=${value}`),
      ).config[name],
      expected,
    );
    const fromFile = load({ ...nested(key, fileValue), ...beside });
    assert.deepEqual(fromFile.config[name], expected);
    const message = refused(() => load({ ...nested(key, fileValue), ...beside }, spaced));
    assert.ok(
      message.includes('the following directives are specified both as a flag and in the configuration file: '),
      message,
    );
    assert.ok(message.includes(`${key}: (from flag: `) && message.includes(`${key} at line 1, column `), message);
    assert.match(helpText(), new RegExp(`--${flag}[ \\n]`));
    const properties = configSchema()['properties'] as Record<string, { properties?: Record<string, unknown> }>;
    const [group = '', member] = key.split('.');
    assert.ok(member === undefined ? properties[group] : properties[group]?.properties?.[member]);
    assert.equal(configView(fromFile).settings[key]?.source, 'file');
    assert.equal(configView(load({})).settings[key]?.source, 'default');
  });
}

test('the table of the specification is whole', () => {
  const known = new Set([...TABLE.map(([flag]) => flag), 'config-file']);
  assert.deepEqual(
    OPTION_LIST.flatMap(({ flag }) => (flag === undefined || known.has(flag) ? [] : [flag])),
    [],
  );
});

test('options that reload are those of the specification, and one of ours', () => {
  const reloadable = OPTION_LIST.filter((option) => option.reloadable)
    .map(({ key = '' }) => key)
    .sort((a, b) => (a < b ? -1 : 1));
  assert.deepEqual(reloadable, [
    'authorization-plugins',
    'debug',
    'default-runtime',
    'features',
    'insecure-registries',
    'labels',
    'live-restore',
    'max-concurrent-downloads',
    'max-concurrent-uploads',
    'max-download-attempts',
    'registry-mirrors',
    'registry-mirrors-for',
    'runtimes',
    'shutdown-timeout',
  ]);
});
