import assert from 'node:assert/strict';
import { readFileSync, rmSync, writeFileSync } from 'node:fs';
import { test } from 'node:test';
import { fileURLToPath } from 'node:url';
import { parseArgv } from './argv.js';
import { configurationDoc } from './configuration-doc.js';
import type { Host } from './host.js';
import { parseHost } from './hosts.js';
import { loadConfig } from './load.js';
import { reloadConfig } from './reload.js';
import { startUp } from './start-up.js';
import { configView } from './view.js';
import { file, HOST, load, refused } from '../../test/support/configurations.js';

test('flags in all their forms', () => {
  const values = (...argv: string[]): Record<string, unknown> => Object.fromEntries(parseArgv(argv).values);
  assert.deepEqual(values('-D', '-H', 'a:1', '-Hb:2', '-H=c:3', '-l', 'warn'), {
    debug: true,
    hosts: ['a:1', 'b:2', 'c:3'],
    logLevel: 'warn',
  });
  assert.deepEqual(values('-DH', 'fd://'), { debug: true, hosts: ['fd://'] });
  assert.deepEqual(values('--debug=false', '--icc=0'), { debug: false, icc: false });
  assert.deepEqual(values('--mtu', '1400', '--mtu=1300'), { mtu: 1300 });
  assert.deepEqual(values('-H', ''), {});
  assert.equal(parseArgv(['--platform', 'windows', '--validate']).platform, 'windows');
  for (const [argv, message] of [
    [['--nope'], "unknown flag: --nope\nSee 'engined --help'."],
    [['--no-debug'], 'unknown flag: --no-debug'],
    [['-x'], "unknown shorthand flag: 'x' in -x"],
    [['--mtu'], 'flag needs an argument: --mtu'],
    [['-H'], "flag needs an argument: 'H' in -H"],
    [['--mtu=big'], 'invalid argument "big" for "--mtu" flag: must be an integer'],
    [['-l', 'loud'], 'invalid argument "loud" for "-l, --log-level" flag: invalid logging level: loud'],
    [['--debug=maybe'], 'invalid argument "maybe" for "-D, --debug" flag: must be true or false'],
    [['--http-proxy', 'ftp://user:secret@h'], 'invalid argument "***"'],
    [['serve'], '"engined" accepts no arguments'],
    [['--', 'x'], '"engined" accepts no arguments'],
  ] as const) {
    const text = refused(() => parseArgv(argv));
    assert.ok(text.startsWith(message), text);
  }
});

test('hosts of the file and the -H fd:// of a unit file are merged, anything else is a conflict', () => {
  const hosts = { hosts: ['unix:///a', 'tcp://127.0.0.1:1'] };
  assert.deepEqual(load(hosts, ['-H', 'fd://']).config.hosts, ['unix:///a', 'tcp://127.0.0.1:1', 'fd://']);
  assert.deepEqual(load({ hosts: ['fd://'] }, ['-H', 'fd://']).config.hosts, ['fd://']);
  assert.match(
    refused(() => load(hosts, ['-H', 'fd://', '-H', 'unix:///b'])),
    /hosts: \(from flag: \[fd:\/\/ unix:\/\/\/b\], from file: \[unix:\/\/\/a tcp:\/\/127.0.0.1:1\]\)/,
  );
  assert.deepEqual(load({}).config.hosts, ['unix:///var/run/engine.sock']);
});

test('one message names every conflict, also of equal values', () => {
  const message = refused(() =>
    load({ debug: true, mtu: 500, features: { cdi: true } }, ['-D', '--mtu', '600', '--feature', 'audit']),
  );
  assert.ok(
    message.includes(
      'debug: (from flag: true, from file: true), features: (from flag: map[audit:true], from file: ' +
        'map[cdi:true]), mtu: (from flag: 600, from file: 500)',
    ),
    message,
  );
});

test('the environment counts where neither flag nor file speaks', () => {
  const environment = {
    HTTP_PROXY: 'http://up:1',
    http_proxy: 'http://low:1',
    https_proxy: 'http://s:1',
    ENGINE_DRIVER: 'overlay2',
    ENGINE_TMPDIR: '/t',
    ENGINE_RAMDISK: '1',
    ENGINE_DISABLE_PIGZ: 'x',
    ENGINE_CERT_PATH: '/certs',
    HOME: '/h',
  };
  const { config, settings } = load({ proxies: { 'no-proxy': 'file' } }, ['--https-proxy', 'http://flag:1'], {
    ...environment,
    NO_PROXY: 'env',
  });
  assert.deepEqual(
    [
      config.httpProxy,
      config.httpsProxy,
      config.noProxy,
      config.storageDriver,
      config.tmpDir,
      config.noPivotRoot,
      config.disablePigz,
      config.tlsCaCert,
    ],
    ['http://up:1', 'http://flag:1', 'file', 'overlay2', '/t', true, true, '/certs/ca.pem'],
  );
  assert.equal(settings.get('httpProxy')?.source, 'environment');
  assert.equal(load({}, [], { HOME: '/h' }).config.tlsKey, '/h/.engine/key.pem');
  const certificates = { tlscacert: file(''), tlscert: file(''), tlskey: file('') };
  assert.equal(load(certificates, [], { ENGINE_TLS_VERIFY: '0' }).config.tlsVerify, true);
  assert.equal(load(certificates, ['--tlsverify']).config.tls, true);
  assert.match(
    refused(() => load({}, [], { HTTP_PROXY: 'gopher://x:y@z' })),
    /^merged configuration .*invalid environment variable HTTP_PROXY: must be the URL/,
  );
  assert.match(
    refused(() => load({}, ['--bridge', 'any+'])),
    /^merged configuration .*invalid bridge name any\+: /,
  );
});

test('files: byte order marks, UTF-16, empty, missing', () => {
  assert.equal(load('\ufeff{"debug": true}').config.debug, true);
  assert.equal(load(Buffer.from('\ufeff{"debug": true}', 'utf16le')).config.debug, true);
  assert.equal(load('  \n').config.debug, false);
  assert.equal(load({ debug: null }).config.debug, false);
  assert.equal(
    refused(() => loadConfig(['--config-file', '/nonexistent/x.json'], {})),
    'unable to configure the daemon with file /nonexistent/x.json: open /nonexistent/x.json: no such file or directory',
  );
  assert.match(
    refused(() => load(Buffer.from([0x7b, 0xff, 0x7d]))),
    /not UTF-8 text$/,
  );
  assert.match(
    refused(() => load('['.repeat(100_000))),
    /nested too deeply/,
  );
});

test('the windows subset', () => {
  const check = (content: unknown) =>
    startUp(['--validate', '--platform', 'windows', '--config-file', file(content)], { HTTP_PROXY: 'http://p:1' }, '0');
  assert.deepEqual(
    check({
      'data-root': 'D:\\engine',
      'default-runtime': 'io.supervisor.runhcs.v1',
      'exec-opts': ['isolation=process'],
      'storage-driver': 'windowsfilter',
      'storage-opts': ['size=40G'],
      features: { 'windows-dns-proxy': true },
    }),
    { kind: 'exit', code: 0, stdout: '', stderr: 'configuration OK\n' },
  );
  const result = check({
    iptables: false,
    'default-runtime': 'runsc',
    'exec-opts': ['native.cgroupdriver=systemd'],
    'storage-driver': 'overlay2',
    'data-root': 'engine',
  });
  assert.ok(result.kind === 'exit' && result.code === 1);
  for (const part of [
    'iptables is not supported on Windows',
    'invalid default runtime runsc: must be com.engine.hcsshim.v1 or io.supervisor.runhcs.v1',
    'native.cgroupdriver is only available on Linux',
    'driver not supported: overlay2',
    'data-root must be an absolute path',
  ]) {
    assert.ok(result.stderr.includes(part), `${result.stderr}\nlacks ${part}`);
  }
});

test('the first cgroup driver named counts, for everybody; a parent is checked against the one in effect', () => {
  const of = (execOpts: readonly string[], host: Partial<Host> = {}): string =>
    load({ 'exec-opts': execOpts }, [], {}, { ...HOST, ...host }).config.cgroupDriver;
  const [cgroupfs, systemd] = ['native.cgroupdriver=cgroupfs', 'native.cgroupdriver=systemd'];
  assert.deepEqual([of([cgroupfs, systemd]), of([systemd, cgroupfs])], ['cgroupfs', 'systemd']);
  assert.deepEqual(
    [of([]), of([], { cgroupVersion: 2 }), of([], { cgroupVersion: 2, systemd: false })],
    ['cgroupfs', 'systemd', 'cgroupfs'],
  );
  const unified = { ...HOST, cgroupVersion: 2 } as const;
  assert.match(
    refused(() => load({ 'cgroup-parent': '/p' }, [], {}, unified)),
    /should be a valid slice named as "xxx.slice" \(cgroup-parent at/,
  );
  assert.equal(
    load({ 'cgroup-parent': '/p', 'exec-opts': [cgroupfs, systemd] }, [], {}, unified).config.cgroupParent,
    '/p',
  );
  assert.equal(load({ 'cgroup-parent': 'p.slice' }, [], {}, unified).config.cgroupParent, 'p.slice');
});

test('real time and a user namespace are asked of hosts that have them only', () => {
  const without = (content: object, host: Partial<Host>): string =>
    refused(() => load(content, [], {}, { ...HOST, ...host }));
  assert.match(
    without({ 'cpu-rt-runtime': 5 }, { cgroupVersion: 2 }),
    /cpu-rt-runtime is not supported with cgroups v2/,
  );
  assert.match(
    without({ 'cpu-rt-period': 5 }, { cpuRealtime: false }),
    /cpu-rt-period: the kernel does not support the real-time/,
  );
  assert.match(
    without({ rootless: true }, { isInitialUserNamespace: true }),
    /rootless: the daemon must run in a user namespace/,
  );
});

test('an empty seccomp profile is the built-in one, and a limit may be of any kind that containers have', () => {
  assert.equal(load({ 'seccomp-profile': '' }).config.seccompProfile, 'builtin');
  assert.equal(load({}, ['--seccomp-profile=']).config.seccompProfile, 'builtin');
  assert.deepEqual(load({}, ['--default-ulimit', 'as=1:2']).config.defaultUlimits, [{ Name: 'as', Soft: 1, Hard: 2 }]);
});

test('addresses to listen on', () => {
  const tls = { tls: true };
  const plain = { tls: false };
  assert.deepEqual(parseHost('tcp://', plain), { kind: 'tcp', host: '127.0.0.1', port: 2375, prefix: '' });
  assert.deepEqual(parseHost('tcp://', tls), { kind: 'tcp', host: '127.0.0.1', port: 2376, prefix: '' });
  assert.deepEqual(parseHost('tcp://0.0.0.0:99/api/v', plain), {
    kind: 'tcp',
    host: '0.0.0.0',
    port: 99,
    prefix: '/api/v',
  });
  assert.deepEqual(parseHost('example.test:', tls), { kind: 'tcp', host: 'example.test', port: 2376, prefix: '' });
  assert.deepEqual(parseHost(':77', plain), { kind: 'tcp', host: '127.0.0.1', port: 77, prefix: '' });
  assert.deepEqual(parseHost('tcp://[::1]:88', plain), { kind: 'tcp', host: '::1', port: 88, prefix: '' });
  assert.deepEqual(parseHost('unix://', plain), { kind: 'unix', path: '/var/run/engine.sock' });
  assert.deepEqual(parseHost('fd://', plain), { kind: 'fd', select: '' });
  assert.deepEqual(parseHost('fd://3', plain), { kind: 'fd', select: '3' });
  for (const bad of [
    'http://x',
    'nothing',
    'unix://relative',
    'tcp://a:99999',
    'tcp://a b:1',
    'npipe:////./pipe/x',
    'tcp://::1:5',
  ])
    refused(() => parseHost(bad, plain));
});

test('help, version, schema and validation are exits', () => {
  assert.deepEqual(startUp(['-v'], {}, '1.2.3'), {
    kind: 'exit',
    code: 0,
    stdout: 'engined version 1.2.3\n',
    stderr: '',
  });
  const help = startUp(['--help'], {}, '1');
  assert.ok(help.kind === 'exit' && help.code === 0 && help.stdout.startsWith('Usage:  engined [OPTIONS]'));
  const schema = startUp(['--print-config-schema'], {}, '1');
  assert.ok(
    schema.kind === 'exit' && !(JSON.parse(schema.stdout) as { additionalProperties: boolean }).additionalProperties,
  );
  assert.deepEqual(startUp(['--config-file', '/nonexistent'], {}, '1').kind, 'exit');
});

test('docs/configuration.md is current', () => {
  const path = fileURLToPath(new URL('../../../docs/configuration.md', import.meta.url));
  assert.equal(
    readFileSync(path, 'utf8'),
    configurationDoc(),
    'run node scripts/write-config-docs.mjs after the build',
  );
});

test('the configuration is frozen through and through', () => {
  const { config } = load({ 'default-address-pools': [{ base: '10.0.0.0/8', size: 24 }] });
  assert.ok(
    Object.isFrozen(config) &&
      Object.isFrozen(config.defaultAddressPools) &&
      Object.isFrozen(config.defaultAddressPools[0]),
  );
});

test('a reload applies what may change and names the rest', async () => {
  const current = load({ debug: true, labels: ['a=b'], mtu: 1400, 'max-concurrent-downloads': 9 }, [
    '--shutdown-timeout',
    '20',
  ]);
  writeFileSync(
    current.config.configFile,
    JSON.stringify({ labels: ['a=c'], mtu: 1300, 'max-concurrent-downloads': 9, dns: ['1.1.1.1'] }),
  );
  const report = await reloadConfig(current);
  assert.equal(report.ok, true);
  assert.deepEqual(report.entries, [
    { key: 'debug', verdict: 'removed', before: 'true', after: 'false' },
    { key: 'dns', verdict: 'needs-restart', before: '[]', after: '[1.1.1.1]' },
    { key: 'labels', verdict: 'applied', before: '[a=b]', after: '[a=c]' },
    { key: 'mtu', verdict: 'needs-restart', before: '1400', after: '1300' },
  ]);
  const { config } = report.loaded;
  assert.deepEqual(
    [config.debug, config.labels, config.mtu, config.dns, config.maxConcurrentDownloads, config.shutdownTimeoutSeconds],
    [false, ['a=c'], 1400, [], 9, 20],
  );
  assert.deepEqual(
    (await reloadConfig(report.loaded)).entries.map(({ verdict }) => verdict),
    ['needs-restart', 'needs-restart'],
    'still true until the restart',
  );
});

test('a reload with anything wrong changes nothing', async () => {
  const current = load({ labels: ['a=b'] }, ['-D']);
  for (const [content, verdicts] of [
    [{ labels: ['a=c'], nope: 1, mtu: -4, debug: true }, ['unknown', 'invalid', 'conflict']],
    ['{', []],
  ] as const) {
    writeFileSync(current.config.configFile, typeof content === 'string' ? content : JSON.stringify(content));
    const report = await reloadConfig(current);
    assert.equal(report.ok, false);
    assert.equal(report.loaded, current);
    assert.notEqual(report.message, '');
    assert.deepEqual(
      report.entries.map(({ verdict }) => verdict),
      verdicts,
    );
  }
  rmSync(current.config.configFile);
  assert.equal((await reloadConfig(current)).ok, false);
});

test('secrets of proxies are shown nowhere', () => {
  const secret = 'http://user:s3cret@proxy:1';
  const loaded = load({ proxies: { 'http-proxy': secret } }, [], { HTTPS_PROXY: secret });
  assert.equal(loaded.config.httpProxy, secret);
  assert.ok(!JSON.stringify(configView(loaded)).includes('s3cret'));
  assert.ok(!refused(() => load({ proxies: { 'http-proxy': secret } }, ['--http-proxy', secret])).includes('s3cret'));
});
