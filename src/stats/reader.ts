/** Reads statistics of containers from the kernel's files: cgroup, network namespace and processors. */
import { totalmem } from 'node:os';
import type { ContainerUsage, StatsTarget } from '../ports/stats.js';
import type { CgroupMounts } from '../sys/process/cgroup-mounts.js';
import { wallClockNs } from '../sys/process/wall-clock.js';
import type { CgroupReader } from './cgroup-reader.js';
import { openCgroupV1 } from './cgroup-v1.js';
import { openCgroupV2 } from './cgroup-v2.js';
import { parseHostCpu, parseNetDev } from './counters.js';
import { KeptFiles } from './kept-files.js';
import { type GroupPath, KeptGroups } from './kept-groups.js';
import { readKernelFile } from './kernel-file.js';
import { noCgroups } from './no-cgroups.js';
import { type PackedUsages, packUsages } from './packed-usages.js';

/** Readings of several containers. */
export interface StatsBatch {
  /** Undefined where containers have no groups. */
  readonly mounts: CgroupMounts | undefined;
  readonly targets: readonly StatsTarget[];
}

/** They end with the thread, which ends when it has been idle for a while. */
const files = new KeptFiles();
const groups = new KeptGroups();

interface Host {
  readonly cpu: ReturnType<typeof parseHostCpu>;
  readonly memory: bigint;
}

/**
 * Reads the counters of each container; undefined for one that has ended. It reads without a pause, 0.1 ms for each, so
 * it belongs in a worker thread.
 */
export function readStats({ mounts, targets }: StatsBatch): PackedUsages {
  files.begin();
  groups.begin();
  const cgroups = mounts ? openCgroups(mounts) : noCgroups;
  // The kernel's file of all memory is read for it.
  const host: Host = { cpu: parseHostCpu(readKernelFile('/proc/stat') ?? ''), memory: BigInt(totalmem()) };
  return packUsages(targets.map((target) => readOne(cgroups, host, target)));
}

function openCgroups({ controllers, unified = '/sys/fs/cgroup' }: CgroupMounts): CgroupReader {
  return controllers.size > 0 ? openCgroupV1(controllers) : openCgroupV2(unified);
}

function readOne(cgroups: CgroupReader, host: Host, target: StatsTarget): ContainerUsage | undefined {
  const { pid, usesHostNetwork } = target;
  const group = groups.find(target) ?? askForGroups(cgroups, target);
  const netDev = usesHostNetwork ? undefined : readKernelFile(`/proc/${pid}/net/dev`);
  if (group === undefined || (netDev === undefined && !usesHostNetwork)) return undefined;
  const usage = cgroups.read(group, files);
  if (usage === undefined) return undefined;
  const { memory } = usage;
  return {
    ...usage,
    readAt: rfc3339(wallClockNs()),
    cpu: { ...usage.cpu, ...host.cpu },
    // The kernel writes a very large number when there is no limit.
    memory: { ...memory, limit: memory.limit > host.memory ? host.memory : memory.limit },
    networks: netDev === undefined ? undefined : parseNetDev(netDev),
  };
}

function askForGroups({ controllers }: CgroupReader, target: StatsTarget): GroupPath | undefined {
  const membership = readKernelFile(`/proc/${target.pid}/cgroup`);
  if (membership === undefined) return undefined;
  const group = groupsOf(membership, target.id);
  groups.keep(target, group, controllers);
  return group;
}

/**
 * Finds a container's group in each hierarchy from `/proc/PID/cgroup`. Init may have moved itself further down, as
 * systemd does: the group of the container is the one with its id in the name.
 */
export function groupsOf(membership: string, id: string): GroupPath {
  const paths = new Map<string, string>();
  for (const line of membership.split('\n')) {
    const [first, second] = [line.indexOf(':'), line.indexOf(':', line.indexOf(':') + 1)];
    if (second === -1) continue;
    const path = line.slice(second + 1);
    const end = path.indexOf('/', path.indexOf(id));
    const own = path.includes(id) && end !== -1 ? path.slice(0, end) : path;
    for (const name of line.slice(first + 1, second).split(',')) paths.set(name, own);
  }
  return (controller) => paths.get(controller);
}

function rfc3339(ns: bigint): string {
  const seconds = new Date(Number(ns / 1_000_000n)).toISOString().slice(0, 19);
  return `${seconds}.${String(ns % 1_000_000_000n).padStart(9, '0')}Z`;
}
