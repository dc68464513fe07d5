/**
 * Turns the resource limits of `HostConfig` into OCI `LinuxResources`; the runtime converts them for cgroup version 2.
 */
import { stat } from 'node:fs/promises';
import { invalid, messageOf } from '../errors/engine-error.js';
import type { HostConfig, Ulimit } from '../ports/container.js';
import { mapInLanes } from '../text/in-lanes.js';
import { deviceNumbers } from './device-numbers.js';
import { isMissing } from './devices.js';
import type { OciResources, OciRlimit, OciThrottle } from './oci-types.js';

/** In microseconds: `NanoCpus` are a share of this period. */
const CPU_PERIOD = 100_000;
/** A limit above the kernel's largest number of processes means no limit; the kernel would refuse it. */
const PID_MAX_LIMIT = 4_194_304;
const RLIM_INFINITY = 0xffff_ffff_ffff_ffffn;

type Limits = Pick<
  HostConfig,
  | 'Memory'
  | 'MemorySwap'
  | 'MemoryReservation'
  | 'MemorySwappiness'
  | 'OomKillDisable'
  | 'CpuShares'
  | 'CpuPeriod'
  | 'CpuQuota'
  | 'NanoCpus'
  | 'CpuRealtimePeriod'
  | 'CpuRealtimeRuntime'
  | 'CpusetCpus'
  | 'CpusetMems'
  | 'PidsLimit'
  | 'BlkioWeight'
  | 'BlkioWeightDevice'
  | 'BlkioDeviceReadBps'
  | 'BlkioDeviceWriteBps'
  | 'BlkioDeviceReadIOps'
  | 'BlkioDeviceWriteIOps'
>;

/**
 * Returns the limits that were set, for create and for update of a running container. They were checked before
 * (validate.ts).
 * @throws EngineError invalid when a device of a block I/O limit does not exist.
 */
export async function buildResources(limits: Limits): Promise<OciResources> {
  const memory = defined({
    limit: limits.Memory || undefined,
    reservation: limits.MemoryReservation || undefined,
    // A negative number means no limit, as in the known engine.
    swap: limits.MemorySwap < 0 ? -1 : limits.MemorySwap || undefined,
    swappiness: limits.MemorySwappiness ?? undefined,
    disableOOMKiller: limits.OomKillDisable || undefined,
  });
  const quota =
    limits.NanoCpus > 0
      ? { quota: Math.floor((limits.NanoCpus * CPU_PERIOD) / 1e9), period: CPU_PERIOD }
      : { quota: limits.CpuQuota || undefined, period: limits.CpuPeriod || undefined };
  const cpu = defined({
    shares: limits.CpuShares || undefined,
    ...quota,
    realtimePeriod: limits.CpuRealtimePeriod || undefined,
    realtimeRuntime: limits.CpuRealtimeRuntime || undefined,
    cpus: limits.CpusetCpus || undefined,
    mems: limits.CpusetMems || undefined,
  });
  const [weightDevice, readBps, writeBps, readIops, writeIops] = await Promise.all([
    mapInLanes(limits.BlkioWeightDevice ?? [], async ({ Path, Weight }) => ({
      ...(await blockDevice(Path)),
      weight: Weight,
    })),
    throttles(limits.BlkioDeviceReadBps),
    throttles(limits.BlkioDeviceWriteBps),
    throttles(limits.BlkioDeviceReadIOps),
    throttles(limits.BlkioDeviceWriteIOps),
  ]);
  const blockIO = defined({
    weight: limits.BlkioWeight || undefined,
    weightDevice: nonEmpty(weightDevice),
    throttleReadBpsDevice: nonEmpty(readBps),
    throttleWriteBpsDevice: nonEmpty(writeBps),
    throttleReadIOPSDevice: nonEmpty(readIops),
    throttleWriteIOPSDevice: nonEmpty(writeIops),
  });
  return {
    ...(memory && { memory }),
    ...(cpu && { cpu }),
    ...(blockIO && { blockIO }),
    ...(limits.PidsLimit === null
      ? {}
      : { pids: { limit: limits.PidsLimit <= 0 || limits.PidsLimit > PID_MAX_LIMIT ? -1 : limits.PidsLimit } }),
  };
}

async function throttles(devices: Limits['BlkioDeviceReadBps']): Promise<OciThrottle[]> {
  return mapInLanes(devices ?? [], async ({ Path, Rate }) => ({ ...(await blockDevice(Path)), rate: Rate }));
}

async function blockDevice(path: string): Promise<{ major: number; minor: number }> {
  try {
    return deviceNumbers((await stat(path)).rdev);
  } catch (error) {
    throw invalid(`stat ${path}: ${isMissing(error) ? 'no such file or directory' : messageOf(error)}`, {
      cause: error,
    });
  }
}

/** Returns the members that are defined; undefined when there are none. */
function defined<T extends Record<string, unknown>>(
  object: T,
): { [K in keyof T]?: Exclude<T[K], undefined> } | undefined {
  const entries = Object.entries(object).filter(([, value]) => value !== undefined);
  return entries.length === 0
    ? undefined
    : (Object.fromEntries(entries) as { [K in keyof T]?: Exclude<T[K], undefined> });
}

function nonEmpty<T>(list: T[]): T[] | undefined {
  return list.length === 0 ? undefined : list;
}

/** Returns the container's own ulimits, then those that only the daemon has. -1 is no limit. */
export function buildRlimits(ulimits: readonly Ulimit[], defaults: readonly Ulimit[]): OciRlimit[] {
  const own = new Set(ulimits.map(({ Name }) => Name));
  return [...ulimits, ...defaults.filter(({ Name }) => !own.has(Name))].map(({ Name, Soft, Hard }) => ({
    type: `RLIMIT_${Name.toUpperCase()}`,
    soft: Soft < 0 ? RLIM_INFINITY : Soft,
    hard: Hard < 0 ? RLIM_INFINITY : Hard,
  }));
}
