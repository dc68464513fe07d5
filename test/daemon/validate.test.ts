/**
 * Wrong values: `--validate`, the start and a reload refuse them in the same words, and a refused reload changes
 * nothing.
 */
import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { existsSync, readFileSync } from 'node:fs';
import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { after, before, test } from 'node:test';
import { Engine } from '../support/engine.js';
import { engined } from '../support/engined.js';
import { call, callJson } from '../support/http.js';

interface Reply {
  readonly ok: boolean;
  readonly message: string;
}

const NO_CLUSTER = 'there is no cluster mode; docs/kubernetes.md is about nodes of a cluster';

/** These keys have no effect; each has the words of the reason. */
const IDLE: Readonly<Record<string, readonly [value: unknown, reason: string]>> = {
  features: [{ buildkit: true, cdi: false }, 'features has no effect: feature buildkit: clients choose how they build'],
  'selinux-enabled': [true, 'selinux-enabled has no effect: this host has no SELinux policy'],
  'userland-proxy-path': ['/bin/sh', 'userland-proxy-path has no effect: the proxy is part of the daemon'],
  'network-control-plane-mtu': [1450, `network-control-plane-mtu has no effect: ${NO_CLUSTER}`],
  'swarm-default-advertise-addr': ['eth0', `swarm-default-advertise-addr has no effect: ${NO_CLUSTER}`],
  bip6: ['fd00:7::1/64', 'bip6 has no effect: the default bridge has no IPv6: ipv6 is off'],
  'fixed-cidr-v6': ['fd00:7::/80', 'fixed-cidr-v6 has no effect: the default bridge has no IPv6: ipv6 is off'],
  'default-gateway-v6': ['fd00:7::9', 'default-gateway-v6 has no effect: the default bridge has no IPv6: ipv6 is off'],
  'image-gc-low-percent': [50, 'image-gc-low-percent has no effect: images are not removed by themselves'],
  'tls-min-version': ['1.3', 'tls-min-version has no effect: TLS is off'],
  'allow-nondistributable-artifacts': [
    [],
    'allow-nondistributable-artifacts has no effect: layers of every kind are pushed',
  ],
  // Not without effect, but hardly what was meant.
  'cdi-spec-dirs': [['specs'], 'cdi-spec-dirs: specs is relative to where the daemon was started'],
  runtimes: [{ gone: { path: '/nonexistent' } }, 'runtime gone cannot be used: there is no program /nonexistent'],
};

const kind = engined({
  args: ['--ip-forward-no-drop'],
  env: { ENGINE_DISABLE_PIGZ: '1' },
  file: Object.fromEntries(Object.entries(IDLE).map(([key, [value]]) => [key, value])),
});
let engine: Engine;
let program: string;
let args: readonly string[];

before(async () => {
  engine = await Engine.start(kind);
  [program = '', ...args] = kind.command(engine.dir, engine.socketPath);
});
after(() => engine.close());

const gc = (members: object): object => ({ builder: { gc: { enabled: true, ...members } } });
const shim = (members: object): object => ({ runtimes: { other: { runtimeType: 'io.example.other.v1', ...members } } });
const runc = (options: object): object => ({ runtimes: { other: { runtimeType: 'io.containerd.runc.v2', options } } });
const hasSystemd = existsSync('/run/systemd/system');

/** Each row has a file's content and the answer of every program that reads it. */
const REFUSED: readonly (readonly [content: object, ...texts: readonly string[]])[] = [
  [{ 'storage-driver': 'zfs' }, 'storage driver zfs: prerequisites for driver not satisfied (wrong filesystem?)'],
  [{ 'storage-driver': 'floppy' }, 'driver not supported: floppy (storage-driver at line 1'],
  [{ rootless: true }, 'rootless: the daemon must run in a user namespace of its own'],
  [
    { features: { 'supervisor-snapshotter': true }, 'storage-driver': '../up', 'storage-opts': ['overlay2.size=1G'] },
    'invalid name of a snapshotter: ../up (storage-driver at line 1',
    'storage option overlay2.size does not belong to the snapshotter ../up',
  ],
  [{ features: { cdii: true } }, 'unknown feature cdii: did you mean "cdi"? (features at line 1'],
  [{ features: { 'containerd-snapshotter': false } }, 'did you mean "supervisor-snapshotter"?'],
  [{ 'seccomp-profile': '/nonexistent.json' }, 'opening seccomp profile (/nonexistent.json) failed: '],
  [{ 'seccomp-profile': '/etc/passwd' }, 'seccomp-profile /etc/passwd: Decoding seccomp profile failed: '],
  [{ mtu: 0 }, 'invalid default MTU: 0: must be from 68 to 65535 (mtu at line 1'],
  [{ mtu: 70_000 }, 'invalid default MTU: 70000'],
  [{ bip: '10.1.0.0/24' }, "invalid bip: 10.1.0.0/24 is the network's own address; give the bridge one inside it"],
  [
    { bip: '10.1.0.1/24', 'fixed-cidr': '10.2.0.0/24' },
    'fixed-cidr 10.2.0.0/24 is not inside the network of bip 10.1.0.1/24',
  ],
  [
    { bip6: 'fd00::1/64', 'default-gateway-v6': 'fd01::1', ipv6: true },
    'default-gateway-v6 fd01::1 is not inside the network of bip6',
  ],
  [{ mtu: 1000, ipv6: true }, 'invalid mtu: 1000: IPv6 needs 1280 at least'],
  [{ supervisor: 'unix:///run/x.sock' }, 'supervisor must be the absolute path of a socket, not "unix:///run/x.sock"'],
  [shim({ options: { TypeUrl: 1 } }), 'runtime other: option TypeUrl must be a string (runtimes at line 1'],
  [
    shim({ runtimeType: 'not a shim' }),
    'runtime other: runtimeType must be the name of a shim such as',
    'not "not a shim"',
  ],
  [runc({ Binary: '/x' }), 'runtime other: unknown option Binary: must be one of BinaryName, '],
  [runc({ IoUid: -1 }), 'runtime other: option IoUid must be a user or group id'],
  [runc({ NoNewKeyring: 'yes' }), 'runtime other: option NoNewKeyring must be a boolean'],
  [{ builder: { gcc: {} } }, "don't match any configuration option: builder.gcc", 'did you mean "builder.gc"?'],
  [gc({ polizy: [] }), 'builder.gc: unknown member "polizy"'],
  [gc({ policy: [{ filters: [] }] }), 'builder.gc: policy: unknown member "filters"'],
  [
    gc({ policy: [{ filter: ['unused for ever'] }] }),
    'filter must have the form <name>=<value>, not "unused for ever"',
  ],
  [gc({ policy: [{ filter: ['unusedfor=2h'] }] }), 'unknown filter "unusedfor"'],
  [gc({ policy: [{ filter: ['unused-for=soon'] }] }), 'filter unused-for must be a duration'],
  [
    { 'log-driver': 'syslog', 'log-opts': { 'syslog-format': 'rfc0' } },
    'failed to set log opts: Invalid syslog format',
  ],
  [{ 'default-ulimits': { nofiles: { Soft: 1, Hard: 1 } } }, 'invalid ulimit type: nofiles'],
  [{ group: 'no-such-group' }, 'group no-such-group not found (group at line 1'],
  [
    { sockets: [{ host: 'unix:///run/x.sock', group: 'no-such-group', allow: [] }] },
    'sockets: host unix:///run/x.sock: group no-such-group not found (sockets at line 1',
  ],
  [
    { tls: true, tlscert: '/etc/passwd', tlskey: '/etc/passwd' },
    'tlscert /etc/passwd holds no PEM certificate (tlscert',
  ],
  [
    { 'storage-driver': 'overlay2', 'storage-opts': ['overlay2.size=1G'] },
    'storage-opts overlay2.size=1G: Storage Option overlay2.size only supported for backingFS XFS. Found ',
    '(storage-opts at line 1',
  ],
  ...(hasSystemd
    ? []
    : ([
        [
          { 'exec-opts': ['native.cgroupdriver=systemd'] },
          'exec-opt native.cgroupdriver=systemd: systemd is not running',
        ],
      ] as const)),
];

/** Rows that do not name the same key are in one file: all that is wrong is said at once. */
function inFewFiles(): { content: Record<string, unknown>; texts: string[] }[] {
  const files: { content: Record<string, unknown>; texts: string[] }[] = [];
  for (const [content, ...texts] of REFUSED) {
    const keys = Object.keys(content);
    let file = files.find((each) => !keys.some((key) => Object.hasOwn(each.content, key)));
    if (!file) files.push((file = { content: {}, texts: [] }));
    Object.assign(file.content, content);
    file.texts.push(...texts);
  }
  return files;
}

test('values that are wrong are refused by --validate, by a start and by a reload in the same words', async (t) => {
  const configFile = join(engine.dir, 'daemon.json');
  const view = (): Promise<{ settings: unknown }> => callJson(engine.socketPath, 'GET', '/engine/config');
  const { settings } = await view();
  for (const { content, texts } of inFewFiles()) {
    await t.test(JSON.stringify(content), async () => {
      // Beside them is a good value that a reload could apply.
      await writeFile(configFile, JSON.stringify({ ...content, labels: ['new=1'] }));
      const [validated, started, { status, text }] = await Promise.all([
        run('--validate'),
        run(),
        call(engine.socketPath, 'POST', '/engine/config/reload'),
      ]);
      for (const part of texts) assert.ok(validated.stderr.includes(part), `${validated.stderr}\nlacks ${part}`);
      assert.deepEqual([validated.code, started.code, status], [1, 1, 400]);
      assert.equal(started.stderr, validated.stderr);
      const reply = JSON.parse(text) as Reply;
      assert.equal(reply.ok, false);
      assert.equal(`${reply.message}\n`, validated.stderr);
      assert.deepEqual((await view()).settings, settings, 'nothing has changed');
    });
  }
});

test('what has no effect is told once by the start, by the configuration in effect and by the documents', async () => {
  const { notices } = await callJson<{ notices: { key: string; message: string }[] }>(
    engine.socketPath,
    'GET',
    '/engine/config',
  );
  const docs = readFileSync(new URL('../../../docs/configuration.md', import.meta.url), 'utf8');
  const reasons = [
    ...Object.values(IDLE).map(([, reason]) => reason),
    'cdi-spec-dirs has no effect: the feature cdi is off',
    'ENGINE_DISABLE_PIGZ has no effect: layers are decompressed by the daemon itself, never by pigz',
  ];
  for (const reason of reasons) {
    assert.equal(
      notices.filter(({ message }) => message.startsWith(reason)).length,
      1,
      `${reason}\n${JSON.stringify(notices)}`,
    );
    assert.equal(engine.log.split(`msg="${reason}`).length, 2, `one line for ${reason}\n${engine.log}`);
    const [key, why = ''] = reason.split(' has no effect: ');
    assert.ok(
      why === '' || docs.split('\n').some((line) => line.startsWith(`| \`${key}\` |`) && line.includes(`| ${why}`)),
      reason,
    );
  }
  assert.equal(notices.length, reasons.length, JSON.stringify(notices));
});

test('a configuration for another platform can be checked and not be run', async () => {
  await writeFile(join(engine.dir, 'daemon.json'), '{}');
  const windows = await execute(program, ['--config-file', join(engine.dir, 'daemon.json'), '--platform', 'windows']);
  assert.equal(windows.code, 1);
  assert.match(windows.stderr, /^invalid argument "windows" for "--platform" flag: only --validate checks for it/);
});

/** The daemon's own command line with more flags; it ends at once, as everything that it is given is wrong. */
function run(...more: readonly string[]): Promise<{ readonly code: number; readonly stderr: string }> {
  return execute(program, [...args, ...more]);
}

function execute(file: string, words: readonly string[]): Promise<{ readonly code: number; readonly stderr: string }> {
  return new Promise((resolve) => {
    const child = execFile(file, words, { timeout: 60_000 }, (_error, _stdout, stderr) => {
      resolve({ code: child.exitCode ?? -1, stderr });
    });
  });
}
