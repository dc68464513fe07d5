/** Reads statistics of containers from the kernel's files: cgroup, network namespace and processors. */
import { totalmem } from 'node:os';
import type { ContainerUsage, StatsTarget } from '../ports/stats.js';
import type { CgroupMounts } from '../sys/process/cgroup-mounts.js';
import { wallClockNs } from '../sys/process/wall-clock.js';
import type { CgroupReader } from './cgroup-reader.js';
import { openCgroupV1 } from './cgroup-v1.js';
import { openCgroupV2 } from './cgroup-v2.js';
import { parseHostCpu, parseNetDev } from './counters.js';
import { readKernelFile } from './kernel-file.js';
import { noCgroups } from './no-cgroups.js';

/** Readings of several containers. */
export interface StatsBatch {
  /** Undefined where containers have no groups. */
  readonly mounts: CgroupMounts | undefined;
  readonly targets: readonly StatsTarget[];
}

type HostCpu = ReturnType<typeof parseHostCpu>;

/**
 * Reads the counters of each container; undefined for one that has ended. It reads without a pause, 0.2 ms for each, so
 * it belongs in a worker thread.
 */
export function readStats({ mounts, targets }: StatsBatch): (ContainerUsage | undefined)[] {
  const cgroups = mounts ? openCgroups(mounts) : noCgroups;
  const hostCpu = parseHostCpu(readKernelFile('/proc/stat') ?? '');
  return targets.map((target) => readOne(cgroups, hostCpu, target));
}

function openCgroups({ controllers, unified = '/sys/fs/cgroup' }: CgroupMounts): CgroupReader {
  return controllers.size > 0 ? openCgroupV1(controllers) : openCgroupV2(unified);
}

function readOne(
  cgroups: CgroupReader,
  hostCpu: HostCpu,
  { id, pid, usesHostNetwork }: StatsTarget,
): ContainerUsage | undefined {
  const membership = readKernelFile(`/proc/${pid}/cgroup`);
  const netDev = usesHostNetwork ? undefined : readKernelFile(`/proc/${pid}/net/dev`);
  if (membership === undefined || (netDev === undefined && !usesHostNetwork)) return undefined;
  const usage = cgroups.read(groupsOf(membership, id));
  if (usage === undefined) return undefined;
  const { memory } = usage;
  const hostMemory = BigInt(totalmem());
  return {
    ...usage,
    readAt: rfc3339(wallClockNs()),
    cpu: { ...usage.cpu, ...hostCpu },
    // The kernel writes a very large number when there is no limit.
    memory: { ...memory, limit: memory.limit > hostMemory ? hostMemory : memory.limit },
    networks: netDev === undefined ? undefined : parseNetDev(netDev),
  };
}

/**
 * Finds a container's group in each hierarchy from `/proc/PID/cgroup`. Init may have moved itself further down, as
 * systemd does: the group of the container is the one with its id in the name.
 */
export function groupsOf(membership: string, id: string): (controller: string) => string | undefined {
  const paths = new Map<string, string>();
  for (const line of membership.split('\n')) {
    const [, names, ...path] = line.split(':');
    if (names === undefined) continue;
    const parts = path.join(':').split('/');
    const own = parts.findIndex((part) => part.includes(id));
    for (const name of names.split(',')) paths.set(name, (own === -1 ? parts : parts.slice(0, own + 1)).join('/'));
  }
  return (controller) => paths.get(controller);
}

function rfc3339(ns: bigint): string {
  const seconds = new Date(Number(ns / 1_000_000n)).toISOString().slice(0, 19);
  return `${seconds}.${String(ns % 1_000_000_000n).padStart(9, '0')}Z`;
}
