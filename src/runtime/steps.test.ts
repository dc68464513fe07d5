import assert from 'node:assert/strict';
import { mkdirSync, mkdtempSync, rmSync, symlinkSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, test } from 'node:test';
import { containerConfig, hostConfig } from '../../test/support/container-defaults.js';
import { isEngineError } from '../errors/engine-error.js';
import type { SpecInput } from '../ports/runtime.js';
import { cgroupsPathFor } from './cgroup-path.js';
import { parseCpuList } from './cpu-list.js';
import { deviceNumbers } from './device-numbers.js';
import { buildDevices, parseDeviceRule } from './devices.js';
import { buildEnvironment } from './environment.js';
import { parseCgroupMounts } from '../sys/process/cgroup-mounts.js';
import { buildMounts } from './mounts.js';
import { buildNamespaces } from './namespaces.js';
import { settlePropagation } from './propagation.js';
import { buildResources, buildRlimits } from './resources.js';
import { parseSecurityOptions } from './security-options.js';
import { buildSysctls } from './sysctls.js';
import { mergeTmpfsOptions, tmpfsOptionsOf } from './tmpfs-options.js';

let dir: string;
before(() => {
  dir = mkdtempSync(join(tmpdir(), 'engined-steps-'));
});
after(() => rmSync(dir, { recursive: true, force: true }));

const input = (host: Parameters<typeof hostConfig>[0] = {}, rest: Partial<SpecInput> = {}): SpecInput => ({
  id: 'a'.repeat(64),
  name: 'n',
  argv: ['true'],
  config: containerConfig(),
  hostConfig: hostConfig(host),
  rootfs: '/rootfs',
  netnsPath: '/run/netns/x',
  files: { hostname: '/f/hostname', hosts: '/f/hosts', resolvConf: '/f/resolv.conf' },
  mounts: [],
  cgroupsPath: '/engine/x',
  ...rest,
});

test('environment: later values replace in place, bare names remove', () => {
  assert.deepEqual(buildEnvironment({ hostname: 'h', tty: true }, ['A=1', 'PATH=/bin', 'B=x=y'], ['A=2', 'TERM']), [
    'PATH=/bin',
    'HOSTNAME=h',
    'A=2',
    'B=x=y',
  ]);
});

test('cgroup path of both drivers', () => {
  assert.equal(cgroupsPathFor({ driver: 'cgroupfs', parent: '', id: 'i', version: 2 }), '/engine/i');
  assert.equal(
    cgroupsPathFor({ driver: 'cgroupfs', parent: '/a/b', id: 'i', version: 2, ownCgroup: '/own' }),
    '/a/b/i',
  );
  // Version 2 has no groups with controllers below one that has processes, so they are beside the daemon's.
  const beside = { driver: 'cgroupfs', id: 'i', version: 2, ownCgroup: '/up/own' } as const;
  assert.equal(cgroupsPathFor({ ...beside, parent: 'a' }), '/up/a/i');
  assert.equal(cgroupsPathFor({ ...beside, parent: '../../..' }), '/up/i');
  // Version 1 has a group of the supervisor's in each controller: the runtime knows them all.
  assert.equal(cgroupsPathFor({ driver: 'cgroupfs', parent: '../a', id: 'i', version: 1, ownCgroup: '/own' }), 'a/i');
  assert.equal(cgroupsPathFor({ driver: 'systemd', parent: '', id: 'i', version: 2 }), 'system.slice:engine:i');
  assert.equal(
    cgroupsPathFor({ driver: 'systemd', parent: 'user-a-b.slice', id: 'i', version: 2 }),
    'user-a-b.slice:engine:i',
  );
});

test('namespaces: own, joined, shared', () => {
  const types = (spec: SpecInput): string[] =>
    buildNamespaces(spec, true).map(({ type, path }) => (path === undefined ? type : `${type}=${path}`));
  assert.deepEqual(types(input()), ['mount', 'network=/run/netns/x', 'uts', 'pid', 'ipc', 'cgroup']);
  assert.deepEqual(
    types(input({ PidMode: 'host', IpcMode: 'host', UTSMode: 'host', CgroupnsMode: 'host' }, { netnsPath: undefined })),
    ['mount'],
  );
  assert.deepEqual(
    types(
      input(
        { PidMode: 'container:x', IpcMode: 'container:x' },
        { joins: { pid: '/proc/1/ns/pid', ipc: '/proc/1/ns/ipc' } },
      ),
    ).slice(2),
    ['uts', 'pid=/proc/1/ns/pid', 'ipc=/proc/1/ns/ipc', 'cgroup'],
  );
  assert.throws(() => types(input({ PidMode: 'container:x' })), /no pid namespace to join/);
});

test('mounts: parents first, user mounts in place of those of the daemon', () => {
  const bind = (Destination: string, RW = true) => ({
    Type: 'bind' as const,
    Source: '/s',
    Destination,
    Mode: '',
    RW,
    Propagation: '',
  });
  const spec = input(
    { Tmpfs: { '/run': 'rw' } },
    { mounts: [bind('/a/b/c'), bind('/etc/hosts', false), bind('/a'), bind('/dev')], initPath: '/usr/bin/tini' },
  );
  const mounts = buildMounts(spec, { recursiveReadOnly: true, runsInit: true });
  assert.deepEqual(
    mounts.map(({ destination }) => destination),
    [
      '/proc',
      '/sys',
      '/sys/fs/cgroup',
      '/a',
      '/dev',
      '/run',
      '/etc/resolv.conf',
      '/etc/hostname',
      '/etc/hosts',
      '/sbin/docker-init',
      '/a/b/c',
    ],
  );
  assert.deepEqual(
    mounts.find(({ destination }) => destination === '/etc/hosts'),
    { destination: '/etc/hosts', type: 'bind', source: '/s', options: ['rbind', 'rro', 'rprivate'] },
  );
});

test('mounts: IPC modes decide about shared memory', () => {
  const shm = (IpcMode: string, shmPath?: string) =>
    buildMounts(input({ IpcMode }, shmPath === undefined ? {} : { shmPath }), {
      recursiveReadOnly: false,
      runsInit: false,
    }).find(({ destination }) => destination === '/dev/shm');
  assert.equal(shm('none'), undefined);
  assert.equal(shm('host')?.source, '/dev/shm');
  assert.equal(shm('shareable', '/x/shm')?.source, '/x/shm');
  assert.ok(shm('private')?.options.includes('size=67108864'));
});

test('mounts: options of a mount request', () => {
  const spec = input(
    {},
    {
      mounts: [
        {
          Type: 'bind',
          Source: '/s',
          Destination: '/x',
          Mode: '',
          RW: false,
          Propagation: 'rslave',
          Spec: { Type: 'bind', Target: '/x', ReadOnly: true, BindOptions: { NonRecursive: true } },
        },
        {
          Type: 'tmpfs',
          Source: '',
          Destination: '/t',
          Mode: '',
          RW: false,
          Propagation: '',
          Spec: { Type: 'tmpfs', Target: '/t', ReadOnly: true, TmpfsOptions: { SizeBytes: 1024, Mode: 0o700 } },
        },
      ],
    },
  );
  const mounts = buildMounts(spec, { recursiveReadOnly: true, runsInit: false });
  assert.deepEqual(mounts.find(({ destination }) => destination === '/x')?.options, ['bind', 'ro', 'rslave']);
  assert.deepEqual(mounts.find(({ destination }) => destination === '/t')?.options, [
    'noexec',
    'nosuid',
    'nodev',
    'rprivate',
    'ro',
    'mode=700',
    'size=1024',
  ]);
});

test('tmpfs options: the last of a kind counts, unknown ones are refused', () => {
  assert.deepEqual(mergeTmpfsOptions('rw,exec,size=1k,ro,size=2k'), [
    'nosuid',
    'nodev',
    'rprivate',
    'exec',
    'ro',
    'size=2k',
  ]);
  assert.equal(
    tmpfsOptionsOf({ Type: 'tmpfs', Target: '/t', TmpfsOptions: { Options: [['noexec'], ['uid', '5']] } }),
    'noexec,uid=5',
  );
  assert.throws(
    () => mergeTmpfsOptions('bogus'),
    (error) => isEngineError(error, 'invalid') && error.message === 'Invalid tmpfs option ["bogus"]',
  );
  assert.throws(() => mergeTmpfsOptions('context=x'), /Invalid tmpfs option/);
});

test('resources: only what was set, CPUs as quota', async () => {
  assert.deepEqual(await buildResources(hostConfig()), {});
  assert.deepEqual(
    await buildResources(
      hostConfig({
        Memory: 10,
        MemorySwap: -1,
        OomKillDisable: true,
        NanoCpus: 250_000_000,
        CpusetCpus: '0-1',
        PidsLimit: 5,
        MemorySwappiness: 0,
      }),
    ),
    {
      memory: { limit: 10, swap: -1, swappiness: 0, disableOOMKiller: true },
      cpu: { quota: 25_000, period: 100_000, cpus: '0-1' },
      pids: { limit: 5 },
    },
  );
  assert.deepEqual(
    await buildResources(hostConfig({ BlkioWeight: 100, BlkioDeviceReadBps: [{ Path: '/dev/null', Rate: 7 }] })),
    {
      blockIO: { weight: 100, throttleReadBpsDevice: [{ major: 1, minor: 3, rate: 7 }] },
    },
  );
  await assert.rejects(buildResources(hostConfig({ BlkioDeviceReadBps: [{ Path: '/nope', Rate: 7 }] })), (error) =>
    isEngineError(error, 'invalid'),
  );
});

test('rlimits: the container over the daemon, -1 is infinity', () => {
  assert.deepEqual(
    buildRlimits(
      [{ Name: 'nofile', Soft: 1, Hard: -1 }],
      [
        { Name: 'nofile', Soft: 9, Hard: 9 },
        { Name: 'core', Soft: 0, Hard: 0 },
      ],
    ),
    [
      { type: 'RLIMIT_NOFILE', soft: 1, hard: 0xffff_ffff_ffff_ffffn },
      { type: 'RLIMIT_CORE', soft: 0, hard: 0 },
    ],
  );
});

test('device rules and numbers', () => {
  assert.deepEqual(parseDeviceRule('c 42:* rm'), { allow: true, type: 'c', major: 42, access: 'rm' });
  for (const text of ['', 'c 42:1', 'x 1:1 r', 'c 1:1 rwmx', 'c 1:1 r '])
    assert.throws(() => parseDeviceRule(text), /^EngineError: invalid device cgroup rule format: /, text);
  assert.deepEqual(deviceNumbers(0x0103), { major: 1, minor: 3 });
  assert.deepEqual(deviceNumbers(Number((0xabcn << 8n) | 0x12n | (0x345n << 20n))), { major: 0xabc, minor: 0x34512 });
});

test('devices of the host: links, directories, and what is none', async () => {
  mkdirSync(join(dir, 'devs'));
  symlinkSync('/dev/null', join(dir, 'link'));
  const nodes = async (PathOnHost: string, PathInContainer = '') =>
    (await buildDevices(hostConfig({ Devices: [{ PathOnHost, PathInContainer, CgroupPermissions: '' }] }))).nodes.map(
      ({ path, major, minor }) => `${path} ${major}:${minor}`,
    );
  assert.deepEqual(await nodes(join(dir, 'link'), '/dev/x'), ['/dev/x 1:3']);
  assert.deepEqual(await nodes('/dev/zero'), ['/dev/zero 1:5']);
  await assert.rejects(
    nodes(join(dir, 'gone')),
    (error) => isEngineError(error, 'invalid') && error.message.endsWith('/gone": no such file or directory'),
  );
  await assert.rejects(nodes(join(dir, 'devs')), /not a device node/);
  await assert.rejects(nodes('/etc/passwd'), /not a device node/);
});

test('security options in both spellings', () => {
  assert.deepEqual(
    parseSecurityOptions([
      'no-new-privileges',
      'seccomp=unconfined',
      'apparmor:x',
      'label=disable',
      'systempaths=unconfined',
    ]),
    {
      noNewPrivileges: true,
      seccomp: 'unconfined',
      apparmor: 'x',
      systemPathsUnconfined: true,
      writableCgroups: undefined,
    },
  );
  assert.equal(parseSecurityOptions(['no-new-privileges=false']).noNewPrivileges, false);
  assert.equal(parseSecurityOptions(['writable-cgroups']).writableCgroups, true);
  assert.equal(parseSecurityOptions(['writable-cgroups=false']).writableCgroups, false);
  assert.throws(() => parseSecurityOptions(['writable-cgroups=x']), /invalid --security-opt 2/);
  assert.throws(() => parseSecurityOptions(['x']), /invalid --security-opt 1: "x"/);
  assert.throws(() => parseSecurityOptions(['x=y']), /invalid --security-opt 2: "x=y"/);
  assert.throws(() => parseSecurityOptions(['no-new-privileges=maybe']), /invalid --security-opt 2/);
  assert.throws(() => parseSecurityOptions(['apparmor=x\nunconfined']), /invalid --security-opt 2/);
});

test("sysctls: defaults only where the network is the container's own", () => {
  assert.deepEqual(Object.keys(buildSysctls(input({ NetworkMode: 'bridge' }), { groups: 65_537 })), [
    'net.ipv4.ip_unprivileged_port_start',
    'net.ipv4.ping_group_range',
  ]);
  assert.deepEqual(buildSysctls(input({ NetworkMode: 'host', Sysctls: { a: 'b' } }), { groups: 65_537 }), { a: 'b' });
  assert.equal(
    buildSysctls(input({ NetworkMode: 'bridge', Sysctls: { 'net.ipv4.ip_unprivileged_port_start': '80' } }), {
      groups: 65_537,
    })['net.ipv4.ip_unprivileged_port_start'],
    '80',
  );
});

test('propagation needs a source that propagates', async () => {
  const point = (Propagation: string) => ({
    Type: 'bind' as const,
    Source: '/proc',
    Destination: '/x',
    Mode: '',
    RW: true,
    Propagation,
  });
  const settled = await settlePropagation([point('rprivate'), point('')]);
  assert.deepEqual([settled.root, settled.mounts.map(({ Propagation }) => Propagation)], [undefined, ['rprivate', '']]);
});

test('CPU lists', () => {
  assert.deepEqual([...(parseCpuList('0-2,5') ?? [])], [0, 1, 2, 5]);
  for (const text of ['a', '1-', '2-1', '0-99999999', '1,,2']) assert.equal(parseCpuList(text), undefined, text);
});

test('cgroup mounts of legacy, hybrid and unified hosts', () => {
  const hybrid =
    '30 24 0:26 / /sys/fs/cgroup/unified rw shared:9 - cgroup2 cgroup2 rw\n' +
    '31 24 0:27 / /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct\n';
  assert.deepEqual(Object.fromEntries(parseCgroupMounts(hybrid).controllers), {
    cpu: '/sys/fs/cgroup/cpu,cpuacct',
    cpuacct: '/sys/fs/cgroup/cpu,cpuacct',
  });
  const unified = parseCgroupMounts('30 24 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n');
  assert.equal(unified.controllers.size, 0);
  assert.equal(unified.unified, '/sys/fs/cgroup');
});
