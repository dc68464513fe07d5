import assert from 'node:assert/strict';
import { test } from 'node:test';
import { containerConfig, hostConfig } from '../../test/support/container-defaults.js';
import { isEngineError } from '../errors/engine-error.js';
import type { ContainerConfig, HostConfig } from '../ports/container.js';
import type { CgroupFacts, HostFacts } from './host-facts.js';
import { validateContainer } from './validate.js';

const cgroup: CgroupFacts = {
  version: 1,
  own: '/',
  memoryLimit: true,
  swapLimit: true,
  memoryReservation: true,
  memorySwappiness: true,
  oomKillDisable: true,
  cpuShares: true,
  cpuQuota: true,
  cpuRealtime: true,
  cpuset: { cpus: '0-1', mems: '0' },
  pids: true,
  blkioWeight: true,
  blkioWeightDevice: true,
  blkioThrottle: true,
  namespaces: true,
};
const facts = (overrides: Partial<CgroupFacts> = {}): HostFacts => ({
  rootless: false,
  lowestOomScore: -1000,
  groups: 2 ** 32 - 1,
  architecture: 'amd64',
  kernel: [6, 1],
  cpuCount: 2,
  capabilities: [],
  cgroup: { ...cgroup, ...overrides },
  apparmor: false,
  seccomp: true,
  x32: false,
  recursiveReadOnly: true,
  systemd: false,
});
const MiB = 1024 * 1024;

const refusals: [host: Partial<HostConfig>, message: string | RegExp, config?: Partial<ContainerConfig>][] = [
  [{ Memory: 1 }, 'Minimum memory limit allowed is 6MB'],
  [{ Memory: -5 }, 'Minimum memory limit allowed is 6MB'],
  [{ Memory: 10 * MiB, MemorySwap: 5 * MiB }, 'Minimum memoryswap limit should be larger than memory limit, see usage'],
  [{ MemorySwap: 5 * MiB }, 'You should always set the Memory limit when using Memoryswap limit, see usage'],
  [{ MemorySwappiness: 101 }, 'Invalid value: 101, valid memory swappiness range is 0-100'],
  [{ MemoryReservation: 1 }, 'Minimum memory reservation allowed is 6MB'],
  [
    { Memory: 10 * MiB, MemoryReservation: 20 * MiB },
    'Minimum memory limit can not be less than memory reservation limit, see usage',
  ],
  [{ NanoCpus: 1, CpuPeriod: 1000 }, 'Conflicting options: Nano CPUs and CPU Period cannot both be set'],
  [{ NanoCpus: 1, CpuQuota: 1000 }, 'Conflicting options: Nano CPUs and CPU Quota cannot both be set'],
  [{ NanoCpus: 3e9 }, 'range of CPUs is from 0.01 to 2.00, as there are only 2 CPUs available'],
  [{ NanoCpus: -1 }, /^range of CPUs/],
  [{ CpuShares: -1 }, 'invalid CPU shares (-1): value must be a positive integer'],
  [{ CpuPeriod: 999 }, 'CPU cfs period can not be less than 1ms (i.e. 1000) or larger than 1s (i.e. 1000000)'],
  [{ CpuQuota: 999 }, 'CPU cfs quota can not be less than 1ms (i.e. 1000)'],
  [
    { CpuRealtimePeriod: 10, CpuRealtimeRuntime: 20 },
    'cpu real-time runtime cannot be higher than cpu real-time period',
  ],
  [{ CpusetCpus: 'x' }, 'Invalid value x for cpuset cpus: invalid format: x'],
  [{ CpusetCpus: '0-7' }, 'Requested CPUs are not available - requested 0-7, available: 0-1'],
  [{ CpusetMems: '3' }, 'Requested memory nodes are not available - requested 3, available: 0'],
  [{ BlkioWeight: 5 }, 'Range of blkio weight is from 10 to 1000'],
  [{ IOMaximumIOps: 5 }, 'Invalid QoS settings: linux does not support configuration of maximum IOPs'],
  [{ ShmSize: -1 }, 'SHM size can not be less than 0'],
  [{ OomScoreAdj: 1001 }, 'Invalid value 1001, range for oom score adj is [-1000, 1000]'],
  [{ IpcMode: 'x' }, 'invalid IPC mode: x'],
  [{ IpcMode: 'container:' }, 'invalid IPC mode: container:'],
  [{ PidMode: 'x' }, 'invalid PID mode: x'],
  [{ UTSMode: 'x' }, 'invalid UTS mode: x'],
  [{ CgroupnsMode: 'x' }, 'invalid cgroup namespace mode: x'],
  [{ Isolation: 'hyperv' }, "invalid isolation (hyperv): linux only supports 'default'"],
  [{ CapAdd: ['x'] }, 'invalid CapAdd: unknown capability: "CAP_X"'],
  [{ SecurityOpt: ['seccomp={'] }, /^Decoding seccomp profile failed/],
  [{ DeviceCgroupRules: ['x'] }, "invalid device cgroup rule format: 'x'"],
  [{ Ulimits: [{ Name: 'x', Soft: 1, Hard: 1 }] }, 'invalid ulimit type: x'],
  [
    { Ulimits: [{ Name: 'core', Soft: 2, Hard: 1 }] },
    'ulimit soft limit must be less than or equal to hard limit: 2 > 1',
  ],
  [
    { Ulimits: [{ Name: 'core', Soft: -1, Hard: 1 }] },
    'ulimit soft limit must be less than or equal to hard limit: -1 > 1',
  ],
  [{ Tmpfs: { '/x': 'bogus' } }, 'Invalid tmpfs option ["bogus"]'],
  [{ Sysctls: { 'vm.swappiness': '1' } }, 'sysctl "vm.swappiness" is not in a separate kernel namespace'],
  [
    { Sysctls: { 'net.ipv4.ip_forward': '1' }, NetworkMode: 'host' },
    'sysctl "net.ipv4.ip_forward" not allowed in host network namespace',
  ],
  [
    { Sysctls: { 'kernel.sem': '1' }, IpcMode: 'host' },
    'sysctl "kernel.sem" is not allowed in the hosts ipc namespace',
  ],
  [{ Sysctls: { '../../x': '1' } }, 'invalid sysctl "../../x"'],
  [
    { RestartPolicy: { Name: 'always', MaximumRetryCount: 3 } },
    "invalid restart policy: maximum retry count can only be used with 'on-failure'",
  ],
  [
    { RestartPolicy: { Name: 'on-failure', MaximumRetryCount: -1 } },
    'invalid restart policy: maximum retry count cannot be negative',
  ],
  [
    { RestartPolicy: { Name: 'x' as 'no', MaximumRetryCount: 0 } },
    "invalid restart policy: unknown policy 'x'; use one of 'no', 'always', 'on-failure', or 'unless-stopped'",
  ],
  [
    { AutoRemove: true, RestartPolicy: { Name: 'always', MaximumRetryCount: 0 } },
    "can't create 'AutoRemove' container with restart policy",
  ],
  [{ PortBindings: { '70000/tcp': [] } }, 'invalid port specification: "70000"'],
  [{ PortBindings: { '80/tcp': [{ HostIp: '', HostPort: '9-8' }] } }, 'invalid port specification: "9-8"'],
  [{ PortBindings: { '80/tcp': [{ HostIp: 'fe80::1%eth0', HostPort: '9' }] } }, /fe80::1%eth0/],
  [{ ExtraHosts: ['x'] }, 'bad format for add-host: "x"'],
  [{ ExtraHosts: ['x:999.1.1.1'] }, 'invalid IP address in add-host: "999.1.1.1"'],
  [{ NetworkMode: 'container:x', Dns: ['1.1.1.1'] }, 'conflicting options: dns and the network mode'],
  [{ Dns: ['1.1.1.1', '::1', 'x'] }, 'bad nameserver address x: unable to parse IP'],
  [
    { RestartPolicy: { Name: '', MaximumRetryCount: 1 } },
    "invalid restart policy: maximum retry count can only be used with 'on-failure'",
  ],
  [
    { NetworkMode: 'container:x', PublishAllPorts: true },
    'conflicting options: port publishing and the container type network mode',
  ],
  [{}, "the working directory 'rel' is invalid, it needs to be an absolute path", { WorkingDir: 'rel' }],
  [{}, 'invalid environment variable: =x', { Env: ['=x'] }],
  [{}, 'Interval in Healthcheck cannot be less than 1ms', { Healthcheck: { Interval: 1 } }],
  [{}, 'Retries in Healthcheck cannot be negative', { Healthcheck: { Retries: -1 } }],
];

for (const [host, message, config = {}] of refusals) {
  test(`refuses ${JSON.stringify({ ...host, ...config })}`, () => {
    assert.throws(
      () => validateContainer(containerConfig(config), hostConfig(host), facts(), { cgroupDriver: 'cgroupfs' }),
      (error) =>
        isEngineError(error, 'invalid') &&
        (typeof message === 'string' ? error.message === message : message.test(error.message)),
    );
  });
}

test('systemd wants slices', () => {
  const check = (CgroupParent: string) =>
    validateContainer(containerConfig(), hostConfig({ CgroupParent }), facts(), { cgroupDriver: 'systemd' });
  assert.throws(() => check('/x'), /valid slice named as "xxx.slice"/);
  check('a-b.slice');
});

test('a container for which nothing was said passes without a word', () => {
  const host = hostConfig();
  assert.deepEqual(validateContainer(containerConfig(), host, facts(), { cgroupDriver: 'cgroupfs' }), {
    hostConfig: host,
    warnings: [],
  });
});

test('what the host cannot do is dropped with a warning', () => {
  const host = hostConfig({
    Memory: 10 * MiB,
    MemorySwap: 20 * MiB,
    MemorySwappiness: 5,
    MemoryReservation: 7 * MiB,
    OomKillDisable: true,
    CpuShares: 5,
    CpuQuota: 5000,
    CpusetCpus: '0',
    PidsLimit: 5,
    BlkioWeight: 50,
    BlkioDeviceReadBps: [{ Path: '/x', Rate: 1 }],
    CpuPercent: 5,
  });
  const none = facts({
    memoryLimit: false,
    swapLimit: false,
    memoryReservation: false,
    memorySwappiness: false,
    oomKillDisable: false,
    cpuShares: false,
    cpuQuota: false,
    cpuset: undefined,
    pids: false,
    blkioWeight: false,
    blkioThrottle: false,
    namespaces: false,
  });
  const { hostConfig: applied, warnings } = validateContainer(containerConfig(), host, none, {
    cgroupDriver: 'cgroupfs',
  });
  assert.equal(warnings.length, 12);
  assert.deepEqual(
    [
      applied.Memory,
      applied.MemorySwap,
      applied.MemorySwappiness,
      applied.MemoryReservation,
      applied.OomKillDisable,
      applied.CpuShares,
      applied.CpuQuota,
      applied.CpusetCpus,
      applied.PidsLimit,
      applied.BlkioWeight,
      applied.BlkioDeviceReadBps,
      applied.CpuPercent,
    ],
    [0, -1, null, 0, null, 0, 0, '', null, 0, [], 0],
  );
});

test('CPU shares are brought into range, disabled OOM killing without a limit warns', () => {
  const { hostConfig: applied, warnings } = validateContainer(
    containerConfig(),
    hostConfig({ CpuShares: 1, OomKillDisable: true, NetworkMode: 'host', PortBindings: { '80/tcp': [] } }),
    facts(),
    { cgroupDriver: 'cgroupfs' },
  );
  assert.equal(applied.CpuShares, 2);
  assert.deepEqual(warnings, [
    'OOM killer is disabled for the container, but no memory limit is set, ' +
      'this can result in the system running out of resources.',
    'Published ports are discarded when using host network mode',
  ]);
});
