/** Specs of the builder, run by the real runc on a busybox root file system and judged from inside. */
import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { randomBytes } from 'node:crypto';
import {
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  readlinkSync,
  rmdirSync,
  rmSync,
  writeFileSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, test } from 'node:test';
import type { ContainerConfig, HostConfig, MountPoint } from '../../src/ports/container.js';
import type { SpecBuilder, SpecInput } from '../../src/ports/runtime.js';
import type { OciSpec } from '../../src/ports/supervisor.js';
import { readHostFacts, type HostFacts } from '../../src/runtime/host-facts.js';
import { createSpecBuilder } from '../../src/runtime/spec-builder.js';
import { validateContainer } from '../../src/runtime/validate.js';
import { encodeOci } from '../../src/supervisor/oci-json.js';
import { containerConfig, hostConfig } from '../support/container-defaults.js';
import { makeRootfs } from '../support/oci-bundle.js';

const parent = `/engined-spec-${randomBytes(4).toString('hex')}`;
let dir: string;
let rootfs: string;
let facts: HostFacts;
let builder: SpecBuilder;

before(async () => {
  dir = mkdtempSync(join(tmpdir(), 'engined-spec-'));
  rootfs = join(dir, 'rootfs');
  makeRootfs(rootfs);
  writeFileSync(join(rootfs, 'etc/passwd'), 'root:x:0:0::/root:/bin/sh\nweb:x:1000:1001::/srv:/bin/sh\n');
  writeFileSync(join(rootfs, 'etc/group'), 'root:x:0:\nweb:x:1001:\naudio:x:29:web\n');
  for (const name of ['hostname', 'hosts', 'resolv.conf']) writeFileSync(join(dir, name), `${name} of the daemon\n`);
  facts = await readHostFacts();
  builder = createSpecBuilder(facts, () => ({
    inherited: [
      { Name: 'nofile', Soft: 1234, Hard: 4321 },
      { Name: 'data', Soft: -1, Hard: -1 },
    ],
    seccomp: 'builtin',
    cdiSpecDirs: [],
    appArmor: undefined,
  }));
});

after(() => {
  rmSync(dir, { recursive: true, force: true });
  for (const root of ['/sys/fs/cgroup', ...readdirSync('/sys/fs/cgroup').map((name) => join('/sys/fs/cgroup', name))]) {
    if (existsSync(join(root, parent))) rmdirSync(join(root, parent));
  }
});

interface Run {
  readonly config?: Partial<ContainerConfig>;
  readonly host?: Partial<HostConfig>;
  readonly input?: Partial<SpecInput>;
  readonly mounts?: readonly MountPoint[];
}

/** Builds the spec of a container that runs a shell script. */
async function specOf(
  id: string,
  script: string,
  { config, host, input, mounts = [] }: Run,
): Promise<{ spec: OciSpec; checked: HostConfig }> {
  const { hostConfig: checked } = validateContainer(containerConfig(config), hostConfig(host), facts, {
    cgroupDriver: 'cgroupfs',
  });
  const { spec } = await builder.build({
    id,
    name: 'test',
    argv: ['/bin/sh', '-c', script],
    config: containerConfig(config),
    hostConfig: checked,
    rootfs,
    netnsPath: undefined,
    files: { hostname: join(dir, 'hostname'), hosts: join(dir, 'hosts'), resolvConf: join(dir, 'resolv.conf') },
    mounts,
    cgroupsPath: `${parent}/${id}`,
    ...input,
  });
  return { spec, checked };
}

/** Runs a shell script in a container and returns what it printed, line by line. */
async function run(script: string, settings: Run = {}): Promise<string[]> {
  const id = randomBytes(32).toString('hex');
  const { spec, checked } = await specOf(id, script, settings);
  // A namespace of the runtime's making, where the daemon passes one that it made.
  const linux = spec['linux'] as { namespaces: unknown[] };
  if (checked.NetworkMode !== 'host') linux.namespaces.push({ type: 'network' });
  const bundle = join(dir, id);
  mkdirSync(bundle);
  writeFileSync(join(bundle, 'config.json'), encodeOci(spec));
  return new Promise((resolve, reject) => {
    execFile(
      'runc',
      ['--root', join(dir, 'state'), 'run', '--bundle', bundle, id],
      { timeout: 20_000 },
      (error, stdout, stderr) => {
        if (error) reject(new Error(`runc: ${error.message}\n${stdout}\n${stderr}`));
        else resolve(stdout.trimEnd().split('\n'));
      },
    );
  });
}

const busybox = '/bin/busybox';

test('identity: hostname, user, groups, environment, working directory', async () => {
  const lines = await run(
    `${busybox} hostname; ${busybox} id -u; ${busybox} id -G; echo $PATH; echo $HOSTNAME; echo $HOME; ` +
      `echo $A; ${busybox} pwd`,
    {
      config: { User: 'web', Env: ['A=b c', 'HOSTNAME=mine'], WorkingDir: '/new/dir' },
      host: { GroupAdd: ['7'] },
    },
  );
  assert.deepEqual(lines, [
    'testhost',
    '1000',
    '1001 7 29',
    '/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin',
    'mine',
    '/srv',
    'b c',
    '/new/dir',
  ]);
});

test('capabilities: default set, added, dropped, none in effect for who is not root', async () => {
  const masks = `${busybox} grep -E 'Cap(Eff|Bnd|Inh)' /proc/self/status | ${busybox} tr -d '\\t'`;
  assert.deepEqual(await run(masks), ['CapInh:0000000000000000', 'CapEff:00000000a80425fb', 'CapBnd:00000000a80425fb']);
  assert.deepEqual(await run(masks, { host: { CapDrop: ['all'], CapAdd: ['net_admin'] } }), [
    'CapInh:0000000000000000',
    'CapEff:0000000000001000',
    'CapBnd:0000000000001000',
  ]);
  assert.deepEqual(await run(masks, { config: { User: '1000' } }), [
    'CapInh:0000000000000000',
    'CapEff:0000000000000000',
    'CapBnd:00000000a80425fb',
  ]);
});

test('labels and profiles of security modules are those that the runtime takes', async () => {
  const labels = { processLabel: 'u:r:t:s0:c1,c2', mountLabel: 'u:o:f:s0:c1,c2' };
  const nested = { SecurityOpt: ['label=nested'] };
  const found = async (input: Partial<SpecInput>, options: Partial<HostConfig> = {}): Promise<unknown[]> => {
    const { spec } = await specOf('a', 'true', { input, host: options });
    const process = spec['process'] as { selinuxLabel?: string; apparmorProfile?: string };
    const mounts = spec['mounts'] as { destination: string }[];
    const isNested = mounts.some(({ destination }) => destination === '/sys/fs/selinux');
    const { mountLabel } = spec['linux'] as { mountLabel?: string };
    return [process.selinuxLabel, mountLabel, process.apparmorProfile, isNested];
  };
  assert.deepEqual(await found({}, nested), [undefined, undefined, undefined, false]);
  assert.deepEqual(await found({ labels, appArmorProfile: 'p' }), [labels.processLabel, labels.mountLabel, 'p', false]);
  assert.deepEqual(await found({ labels }, nested), [labels.processLabel, labels.mountLabel, undefined, true]);
  const unlabelled = { ...labels, processLabel: '' };
  assert.deepEqual(await found({ labels: unlabelled }), [undefined, labels.mountLabel, undefined, false]);
  const exec = { config: containerConfig(), hostConfig: hostConfig(), rootfs, argv: ['true'], env: [], user: '' };
  const made = await builder.buildExec({
    ...exec,
    workingDir: '',
    tty: false,
    privileged: true,
    processLabel: labels.processLabel,
    appArmorProfile: 'p',
  });
  assert.deepEqual([made['selinuxLabel'], made['apparmorProfile']], [labels.processLabel, 'p']);
});

test('seccomp: the filter is on and refuses what needs a capability', async () => {
  const mode = `${busybox} grep -w Seccomp /proc/self/status | ${busybox} tr -d '\\t'`;
  const script = `${mode}; ${busybox} unshare -m true 2>&1; echo $?`;
  const refused = await run(script);
  assert.equal(refused[0], 'Seccomp:2');
  assert.match(refused[1] ?? '', /unshare.*Operation not permitted/);
  assert.deepEqual(await run(script, { host: { CapAdd: ['SYS_ADMIN'] } }), ['Seccomp:2', '0']);
  assert.deepEqual(await run(mode, { host: { SecurityOpt: ['seccomp=unconfined'] } }), ['Seccomp:0']);
});

test('a profile of the client in place of the default', async () => {
  const profile = JSON.stringify({
    defaultAction: 'SCMP_ACT_ALLOW',
    syscalls: [{ names: ['mkdir', 'mkdirat'], action: 'SCMP_ACT_ERRNO', errnoRet: 13 }],
  });
  const lines = await run(`${busybox} mkdir /x 2>&1; exit 0`, { host: { SecurityOpt: [`seccomp=${profile}`] } });
  assert.match(lines[0] ?? '', /Permission denied/);
});

test('no-new-privileges', async () => {
  const script = `${busybox} grep NoNewPrivs /proc/self/status | ${busybox} tr -d '\\t'`;
  assert.deepEqual(await run(script), ['NoNewPrivs:0']);
  assert.deepEqual(await run(script, { host: { SecurityOpt: ['no-new-privileges'] } }), ['NoNewPrivs:1']);
});

test('masked and read-only paths, and neither for privileged containers', async () => {
  const script =
    `${busybox} wc -c < /proc/timer_list; ${busybox} ls /sys/firmware | ${busybox} wc -l; ` +
    '(echo 0 > /proc/sys/kernel/ngroups_max) 2>&1; ' +
    `${busybox} grep -cE ' /sys(/fs/cgroup)? .*\\bro,' /proc/mounts; exit 0`;
  const [timers, firmware, sys, readOnly] = await run(script);
  assert.deepEqual([timers, firmware], ['0', '0']);
  assert.match(sys ?? '', /Read-only file system/);
  assert.notEqual(readOnly, '0');
  const privileged = await run(
    `${busybox} grep CapEff /proc/self/status; ` +
      `${busybox} test -c /dev/loop-control -o -c /dev/kmsg && echo devices; ` +
      `${busybox} grep -w Seccomp /proc/self/status; ${busybox} grep -E ' /sys ' /proc/mounts`,
    {
      host: { Privileged: true, MaskedPaths: null, ReadonlyPaths: null },
    },
  );
  assert.equal(BigInt(`0x${privileged[0]?.split('\t')[1]}`), capabilityMask());
  assert.equal(privileged[1], 'devices');
  assert.match(privileged[2] ?? '', /0$/);
  assert.match(privileged[3] ?? '', / rw,/);
});

function capabilityMask(): bigint {
  const line = /^CapBnd:\s*(\S+)/m.exec(readFileSync('/proc/self/status', 'utf8'));
  return BigInt(`0x${line?.[1] ?? '0'}`);
}

test('limits: memory, swap, CPU, pids, rlimits, out-of-memory score', async () => {
  const cgroup = (controller: string, file: string): string =>
    `${busybox} cat /sys/fs/cgroup/${facts.cgroup.version === 1 ? `${controller}/` : ''}${file}`;
  const v1 = facts.cgroup.version === 1;
  const lines = await run(
    [
      cgroup('memory', v1 ? 'memory.limit_in_bytes' : 'memory.max'),
      cgroup('cpu', v1 ? 'cpu.cfs_quota_us' : 'cpu.max'),
      cgroup('pids', 'pids.max'),
      'ulimit -Sn; ulimit -Hn; ulimit -d',
      `${busybox} awk '/processes/{print $3}' /proc/self/limits`,
      `${busybox} cat /proc/self/oom_score_adj`,
    ].join('; '),
    {
      host: {
        Memory: 33_554_432,
        MemorySwap: 67_108_864,
        NanoCpus: 1_500_000_000,
        PidsLimit: 77,
        OomScoreAdj: 321,
        Ulimits: [{ Name: 'nproc', Soft: 400, Hard: 500 }],
      },
    },
  );
  assert.deepEqual(lines, [
    '33554432',
    v1 ? '150000' : '150000 100000',
    '77',
    '1234',
    '4321',
    'unlimited',
    '400',
    '321',
  ]);
});

test('every limit of this host is accepted by the runtime', async () => {
  await run('true', {
    host: {
      Memory: 67_108_864,
      MemorySwap: -1,
      MemoryReservation: 33_554_432,
      MemorySwappiness: 10,
      OomKillDisable: true,
      CpuShares: 100,
      CpuPeriod: 50_000,
      CpuQuota: 25_000,
      CpusetCpus: '0',
      CpusetMems: '0',
      BlkioWeight: 300,
      PidsLimit: 20,
    },
  });
});

test('files of the daemon, binds, tmpfs, shared memory, and a read-only root', async () => {
  mkdirSync(join(dir, 'volume/deep'), { recursive: true });
  writeFileSync(join(dir, 'volume/file'), 'from the host\n');
  const mounts: MountPoint[] = [
    {
      Type: 'bind',
      Source: join(dir, 'volume/deep'),
      Destination: '/data/deep',
      Mode: '',
      RW: true,
      Propagation: 'rprivate',
    },
    { Type: 'bind', Source: join(dir, 'volume'), Destination: '/data', Mode: 'ro', RW: false, Propagation: 'rprivate' },
  ];
  const lines = await run(
    'cat /etc/hostname /etc/hosts /etc/resolv.conf /data/file; (echo x > /data/y) 2>&1; ' +
      'echo ok > /data/deep/z && echo writable; (echo x > /y) 2>&1; ' +
      `${busybox} df -k /dev/shm /scratch | ${busybox} awk 'NR>1{print $2}'; ` +
      `${busybox} ls -ld /scratch | ${busybox} cut -c1-10; echo x > /dev/shm/x && echo shm`,
    { host: { ReadonlyRootfs: true, ShmSize: 1_048_576, Tmpfs: { '/scratch': 'size=2m,mode=700,exec' } }, mounts },
  );
  assert.deepEqual(lines.slice(0, 4), [
    'hostname of the daemon',
    'hosts of the daemon',
    'resolv.conf of the daemon',
    'from the host',
  ]);
  assert.match(lines[4] ?? '', /Read-only file system/);
  assert.equal(lines[5], 'writable');
  assert.match(lines[6] ?? '', /Read-only file system/);
  assert.deepEqual(lines.slice(7), ['1024', '2048', 'drwx------', 'shm']);
});

test('devices: the default set, a device of the host, and its rule', async () => {
  const script =
    `for d in null zero full random urandom tty ptmx; do ${busybox} test -e /dev/$d || echo no $d; done; ` +
    `${busybox} stat -c '%t %T' /dev/mem-copy; ` +
    `${busybox} dd if=/dev/mem-copy of=/dev/null bs=1 count=1 2>/dev/null && echo readable; ` +
    `${busybox} mknod /tmp/kmsg c 1 11; (${busybox} head -c1 /tmp/kmsg) 2>&1; rm -f /tmp/kmsg 2>/dev/null; ` +
    'exit 0';
  const lines = await run(`${script}; ${busybox} rm -f /tmp/kmsg`, {
    host: { Devices: [{ PathOnHost: '/dev/full', PathInContainer: '/dev/mem-copy', CgroupPermissions: 'r' }] },
  });
  assert.deepEqual(lines.slice(0, 2), ['1 7', 'readable']);
  assert.match(lines[2] ?? '', /Operation not permitted/);
  rmSync(join(rootfs, 'tmp/kmsg'), { force: true });
});

test('namespaces shared with the host', async () => {
  const own = (name: string): string => `${busybox} readlink /proc/self/ns/${name}`;
  const script = ['pid', 'ipc', 'uts', 'net', 'cgroup'].map(own).join('; ');
  const host = await run(`${script}; echo`, {
    host: { PidMode: 'host', IpcMode: 'host', UTSMode: 'host', NetworkMode: 'host', CgroupnsMode: 'host' },
  });
  const isolated = await run(script);
  const here = (name: string): string => readlinkSync(`/proc/self/ns/${name}`);
  assert.deepEqual(host.slice(0, 5), ['pid', 'ipc', 'uts', 'net', 'cgroup'].map(here));
  for (const [index, name] of ['pid', 'ipc', 'uts', 'net', 'cgroup'].entries())
    assert.notEqual(isolated[index], here(name), name);
});

test('sysctls: unprivileged ports by default, and what the client sets', async () => {
  const lines = await run(
    'cat /proc/sys/net/ipv4/ip_unprivileged_port_start /proc/sys/net/ipv4/ping_group_range ' +
      '/proc/sys/kernel/msgmax /proc/sys/kernel/domainname',
    {
      config: { Domainname: 'example.test' },
      host: { Sysctls: { 'kernel.msgmax': '4096' } },
    },
  );
  assert.deepEqual(lines, ['0', '0\t2147483647', '4096', 'example.test']);
});

test(
  'an init process reaps and forwards',
  { skip: existsSync('/usr/bin/tini-static') ? false : 'no static tini on this host' },
  async () => {
    mkdirSync(join(rootfs, 'sbin'), { recursive: true });
    const lines = await run(`cat /proc/1/comm; echo $$; exit 0`, { input: { initPath: '/usr/bin/tini-static' } });
    assert.equal(lines[0], 'docker-init');
    assert.notEqual(lines[1], '1');
  },
);

test('an exec inherits the container and may differ', async () => {
  const process = await builder.buildExec({
    config: containerConfig({ User: 'web', Env: ['A=1', 'B=2'], WorkingDir: '/srv', Tty: false }),
    hostConfig: hostConfig(),
    rootfs,
    argv: ['true'],
    env: ['B=3'],
    user: '0:audio',
    workingDir: '',
    tty: true,
    privileged: true,
    consoleSize: [40, 100],
  });
  assert.deepEqual(process['user'], { uid: 0, gid: 29, additionalGids: [29] });
  assert.deepEqual(process['consoleSize'], { height: 40, width: 100 });
  assert.deepEqual((process['env'] as string[]).slice(1), ['HOSTNAME=testhost', 'TERM=xterm', 'A=1', 'B=3']);
  assert.equal(process['cwd'], '/srv');
  assert.deepEqual((process['capabilities'] as { effective: string[] }).effective, facts.capabilities);
});
