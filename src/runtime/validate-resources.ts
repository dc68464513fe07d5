/**
 * Checks resource limits: whether they make sense and whether this host can apply them, with the Engine API's messages.
 */
import { invalid } from '../errors/engine-error.js';
import type { HostConfig } from '../ports/container.js';
import { parseCpuList } from './cpu-list.js';
import type { CgroupFacts, HostFacts } from './host-facts.js';

const MIN_MEMORY_BYTES = 6 * 1024 * 1024;
const MIN_CPU_SHARES = 2;
const MAX_CPU_SHARES = 262_144;

const BLOCK_IO = [
  'BlkioWeight',
  'BlkioWeightDevice',
  'BlkioDeviceReadBps',
  'BlkioDeviceWriteBps',
  'BlkioDeviceReadIOps',
  'BlkioDeviceWriteIOps',
] as const;

export interface HostLimits {
  /** The configuration without the limits that the host cannot apply. */
  readonly hostConfig: HostConfig;
  readonly warnings: readonly string[];
}

/**
 * Refuses limits that make no sense and drops those that this host cannot apply. Idempotent. With `update` a swap
 * limit may come alone: the memory limit is there already.
 * @throws EngineError invalid, naming the limit.
 */
export function applyHostLimits(
  given: HostConfig,
  facts: HostFacts,
  options: { readonly update?: boolean } = {},
): HostLimits {
  const warnings: string[] = [];
  const hostConfig = { ...given };
  if (facts.rootless) refuseUndelegated(given, facts.cgroup);
  checkMemory(hostConfig, facts, warnings, options.update === true);
  checkCpu(hostConfig, facts, warnings);
  checkCpuset(hostConfig, facts, warnings);
  checkBlockIo(hostConfig, facts, warnings);
  if (hostConfig.PidsLimit !== null && !facts.cgroup.pids) {
    if (hostConfig.PidsLimit > 0)
      warnings.push(
        'Your kernel does not support PIDs limit capabilities or the cgroup is not mounted. PIDs limit discarded.',
      );
    hostConfig.PidsLimit = null;
  }
  return { hostConfig, warnings };
}

/**
 * Refuses limits that nobody would keep. Root's daemon drops them with a warning, as the kernel lacks them for good;
 * a user can have them delegated, and would otherwise take a container for limited that is not.
 * @throws EngineError invalid naming the limit.
 */
function refuseUndelegated(limits: HostConfig, cgroup: CgroupFacts): void {
  const wanted: readonly (readonly [controller: string, isThere: boolean, field: keyof HostConfig])[] = [
    ...(['Memory', 'MemorySwap', 'MemoryReservation'] as const).map(
      (field) => ['memory', cgroup.memoryLimit, field] as const,
    ),
    ...(['NanoCpus', 'CpuShares', 'CpuQuota', 'CpuPeriod'] as const).map(
      (field) => ['cpu', cgroup.cpuQuota, field] as const,
    ),
    ...(['CpusetCpus', 'CpusetMems'] as const).map((field) => ['cpuset', cgroup.cpuset !== undefined, field] as const),
    ['pids', cgroup.pids, 'PidsLimit'],
    ...BLOCK_IO.map((field) => ['io', cgroup.blkioThrottle, field] as const),
  ];
  for (const [controller, isThere, field] of wanted) {
    const value = limits[field];
    const isLimit =
      typeof value === 'number'
        ? value > 0
        : Array.isArray(value) || typeof value === 'string'
          ? value.length > 0
          : false;
    if (!isThere && isLimit)
      throw invalid(
        `${field} cannot be kept by a rootless daemon: ` +
          (cgroup.version === 2
            ? `the controller ${controller} of the control groups is not delegated to the user`
            : 'this host has control groups of version 1, which cannot be delegated to a user'),
        { code: 'NOT_DELEGATED' },
      );
  }
}

function checkMemory(limits: HostConfig, { cgroup }: HostFacts, warnings: string[], update: boolean): void {
  if (limits.Memory !== 0 && limits.Memory < MIN_MEMORY_BYTES) throw invalid('Minimum memory limit allowed is 6MB');
  if (limits.Memory > 0 && !cgroup.memoryLimit) {
    warnings.push(
      'Your kernel does not support memory limit capabilities or the cgroup is not mounted. Limitation discarded.',
    );
    limits.Memory = 0;
    limits.MemorySwap = -1;
  }
  if (limits.Memory > 0 && limits.MemorySwap !== -1 && !cgroup.swapLimit) {
    warnings.push(
      'Your kernel does not support swap limit capabilities or the cgroup is not mounted. Memory limited without swap.',
    );
    limits.MemorySwap = -1;
  }
  if (limits.Memory > 0 && limits.MemorySwap > 0 && limits.MemorySwap < limits.Memory) {
    throw invalid('Minimum memoryswap limit should be larger than memory limit, see usage');
  }
  if (limits.Memory === 0 && limits.MemorySwap > 0 && !update) {
    throw invalid('You should always set the Memory limit when using Memoryswap limit, see usage');
  }
  checkSwappiness(limits, cgroup.memorySwappiness, warnings);
  if (limits.MemoryReservation > 0 && !cgroup.memoryReservation) {
    warnings.push(
      'Your kernel does not support memory soft limit capabilities or the cgroup is not mounted. Limitation discarded.',
    );
    limits.MemoryReservation = 0;
  }
  if (limits.MemoryReservation > 0 && limits.MemoryReservation < MIN_MEMORY_BYTES)
    throw invalid('Minimum memory reservation allowed is 6MB');
  if (limits.Memory > 0 && limits.MemoryReservation > 0 && limits.Memory < limits.MemoryReservation) {
    throw invalid('Minimum memory limit can not be less than memory reservation limit, see usage');
  }
  if (limits.OomKillDisable !== null && !cgroup.oomKillDisable) {
    if (limits.OomKillDisable) warnings.push('Your kernel does not support OomKillDisable. OomKillDisable discarded.');
    limits.OomKillDisable = null;
  }
  if (limits.OomKillDisable === true && limits.Memory === 0) {
    warnings.push(
      'OOM killer is disabled for the container, but no memory limit is set, ' +
        'this can result in the system running out of resources.',
    );
  }
}

function checkSwappiness(limits: HostConfig, supported: boolean, warnings: string[]): void {
  if (limits.MemorySwappiness === null) return;
  if (!supported) {
    warnings.push(
      'Your kernel does not support memory swappiness capabilities or the cgroup is not mounted. ' +
        'Memory swappiness discarded.',
    );
    limits.MemorySwappiness = null;
  } else if (limits.MemorySwappiness < 0 || limits.MemorySwappiness > 100) {
    throw invalid(`Invalid value: ${limits.MemorySwappiness}, valid memory swappiness range is 0-100`);
  }
}

function checkCpu(limits: HostConfig, { cgroup, cpuCount }: HostFacts, warnings: string[]): void {
  if (limits.NanoCpus > 0 && limits.CpuPeriod > 0)
    throw invalid('Conflicting options: Nano CPUs and CPU Period cannot both be set');
  if (limits.NanoCpus > 0 && limits.CpuQuota > 0)
    throw invalid('Conflicting options: Nano CPUs and CPU Quota cannot both be set');
  if (limits.NanoCpus > 0 && !cgroup.cpuQuota) {
    throw invalid(
      'NanoCPUs can not be set, as your kernel does not support CPU CFS scheduler or the cgroup is not mounted',
    );
  }
  if (limits.NanoCpus < 0 || limits.NanoCpus > cpuCount * 1e9) {
    throw invalid(`range of CPUs is from 0.01 to ${cpuCount}.00, as there are only ${cpuCount} CPUs available`);
  }
  if (limits.CpuShares < 0) throw invalid(`invalid CPU shares (${limits.CpuShares}): value must be a positive integer`);
  if (limits.CpuShares > 0 && !cgroup.cpuShares) {
    warnings.push('Your kernel does not support CPU shares or the cgroup is not mounted. Shares discarded.');
    limits.CpuShares = 0;
  }
  if (limits.CpuShares > 0) limits.CpuShares = Math.min(Math.max(limits.CpuShares, MIN_CPU_SHARES), MAX_CPU_SHARES);
  if ((limits.CpuPeriod !== 0 || limits.CpuQuota !== 0) && !cgroup.cpuQuota) {
    warnings.push('Your kernel does not support CPU CFS scheduler. CPU period/quota discarded.');
    limits.CpuPeriod = 0;
    limits.CpuQuota = 0;
  }
  if (limits.CpuPeriod !== 0 && (limits.CpuPeriod < 1000 || limits.CpuPeriod > 1_000_000)) {
    throw invalid('CPU cfs period can not be less than 1ms (i.e. 1000) or larger than 1s (i.e. 1000000)');
  }
  if (limits.CpuQuota > 0 && limits.CpuQuota < 1000)
    throw invalid('CPU cfs quota can not be less than 1ms (i.e. 1000)');
  if ((limits.CpuRealtimePeriod !== 0 || limits.CpuRealtimeRuntime !== 0) && !cgroup.cpuRealtime) {
    throw invalid('kernel does not support CPU real-time scheduler');
  }
  if (limits.CpuRealtimePeriod !== 0 && limits.CpuRealtimeRuntime > limits.CpuRealtimePeriod) {
    throw invalid('cpu real-time runtime cannot be higher than cpu real-time period');
  }
  if (limits.CpuPercent > 0) {
    warnings.push('linux does not support CPU percent. Percent discarded.');
    limits.CpuPercent = 0;
  }
}

function checkCpuset(limits: HostConfig, { cgroup: { cpuset } }: HostFacts, warnings: string[]): void {
  if (limits.CpusetCpus === '' && limits.CpusetMems === '') return;
  if (!cpuset) {
    warnings.push('Your kernel does not support cpuset or the cgroup is not mounted. Cpuset discarded.');
    limits.CpusetCpus = '';
    limits.CpusetMems = '';
    return;
  }
  const check = (requested: string, available: string, kind: string, what: string): void => {
    const wanted = parseCpuList(requested);
    if (!wanted) throw invalid(`Invalid value ${requested} for cpuset ${kind}: invalid format: ${requested}`);
    const there = parseCpuList(available);
    if (there && [...wanted].some((number) => !there.has(number))) {
      throw invalid(`Requested ${what} are not available - requested ${requested}, available: ${available}`);
    }
  };
  check(limits.CpusetCpus, cpuset.cpus, 'cpus', 'CPUs');
  check(limits.CpusetMems, cpuset.mems, 'mems', 'memory nodes');
}

function checkBlockIo(limits: HostConfig, { cgroup }: HostFacts, warnings: string[]): void {
  if (limits.BlkioWeight > 0 && !cgroup.blkioWeight) {
    warnings.push('Your kernel does not support Block I/O weight or the cgroup is not mounted. Weight discarded.');
    limits.BlkioWeight = 0;
  }
  if (limits.BlkioWeight !== 0 && (limits.BlkioWeight < 10 || limits.BlkioWeight > 1000))
    throw invalid('Range of blkio weight is from 10 to 1000');
  if (limits.IOMaximumBandwidth !== 0)
    throw invalid('Invalid QoS settings: linux does not support configuration of maximum bandwidth');
  if (limits.IOMaximumIOps !== 0)
    throw invalid('Invalid QoS settings: linux does not support configuration of maximum IOPs');
  if (limits.BlkioWeightDevice?.length && !cgroup.blkioWeightDevice) {
    warnings.push(
      'Your kernel does not support Block I/O weight_device or the cgroup is not mounted. Weight-device discarded.',
    );
    limits.BlkioWeightDevice = [];
  }
  for (const { Path, Weight } of limits.BlkioWeightDevice ?? []) {
    if (Weight < 10 || Weight > 1000)
      throw invalid(`Invalid weight for device ${Path}: range of blkio weight is from 10 to 1000`);
  }
  for (const [field, text] of THROTTLES) {
    if (!limits[field]?.length || cgroup.blkioThrottle) continue;
    warnings.push(text);
    limits[field] = [];
  }
}

const THROTTLES = [
  [
    'BlkioDeviceReadBps',
    'Your kernel does not support BPS Block I/O read limit or the cgroup is not mounted. ' +
      'Block I/O BPS read limit discarded.',
  ],
  [
    'BlkioDeviceWriteBps',
    'Your kernel does not support BPS Block I/O write limit or the cgroup is not mounted. ' +
      'Block I/O BPS write limit discarded.',
  ],
  [
    'BlkioDeviceReadIOps',
    'Your kernel does not support IOPS Block read limit or the cgroup is not mounted. ' +
      'Block I/O IOPS read limit discarded.',
  ],
  [
    'BlkioDeviceWriteIOps',
    'Your kernel does not support IOPS Block write limit or the cgroup is not mounted. ' +
      'Block I/O IOPS write limit discarded.',
  ],
] as const;
