/** Reads statistics of containers from the kernel's files: cgroup, network namespace and processors. */
import { readFile } from 'node:fs/promises';
import { totalmem } from 'node:os';
import { notFound } from '../errors/engine-error.js';
import type { StatsReader } from '../ports/stats.js';
import { wallClockNs } from '../sys/process/wall-clock.js';
import { openCgroupV1 } from './cgroup-v1.js';
import { openCgroupV2 } from './cgroup-v2.js';
import { parseHostCpu, parseNetDev } from './counters.js';

export interface CgroupHierarchies {
  /** Mount point of each version 1 controller; none on a host with version 2 only. */
  readonly controllers: ReadonlyMap<string, string>;
  readonly unified: string | undefined;
}

export async function createStatsReader({ controllers, unified }: CgroupHierarchies): Promise<StatsReader> {
  const cgroups = controllers.size > 0 ? await openCgroupV1(controllers) : openCgroupV2(unified ?? '/sys/fs/cgroup');
  const hostMemory = BigInt(totalmem());
  return {
    async read({ id, pid, usesHostNetwork }) {
      const gone = (): never => {
        throw notFound(`no statistics for container ${id}: it has ended`);
      };
      const ownFile = (name: string): Promise<string> => readFile(`/proc/${pid}/${name}`, 'utf8').catch(gone);
      const [membership, netDev, hostCpu] = await Promise.all([
        ownFile('cgroup'),
        usesHostNetwork ? undefined : ownFile('net/dev'),
        readFile('/proc/stat', 'utf8'),
      ]);
      const usage = (await cgroups.read(groupsOf(membership, id))) ?? gone();
      const { memory } = usage;
      return {
        ...usage,
        readAt: rfc3339(wallClockNs()),
        cpu: { ...usage.cpu, ...parseHostCpu(hostCpu) },
        // The kernel writes a very large number when there is no limit.
        memory: { ...memory, limit: memory.limit > hostMemory ? hostMemory : memory.limit },
        networks: netDev === undefined ? undefined : parseNetDev(netDev),
      };
    },
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
