/** Statistics as the Engine API shows them. */
import {
  BLOCK_IO_COUNTERS,
  type BlockIoUsage,
  type ContainerUsage,
  type CpuUsage,
  type InterfaceUsage,
  type MemoryUsage,
} from '../../ports/stats.js';
import { renderJson } from './render-json.js';

const NEVER = '0001-01-01T00:00:00Z';

/**
 * Renders one object of the stream, with its newline. `previous` is the reading that this client got before, for its
 * deltas.
 */
export function statsJson(
  container: { readonly id: string; readonly name: string },
  usage: ContainerUsage | undefined,
  previous: ContainerUsage | undefined,
): string {
  return `${renderJson({
    name: container.name,
    id: container.id,
    read: usage?.readAt ?? NEVER,
    preread: previous?.readAt ?? NEVER,
    pids_stats: usage ? withoutZeros(usage.pids) : {},
    blkio_stats: usage
      ? blockIo(usage.blockIo)
      : Object.fromEntries(BLOCK_IO_COUNTERS.map((counter) => [counter, null])),
    // The next two are for another operating system.
    num_procs: 0,
    storage_stats: {},
    cpu_stats: cpu(usage?.cpu),
    precpu_stats: cpu(previous?.cpu),
    memory_stats: usage ? memory(usage.memory) : {},
    ...(usage?.networks && Object.keys(usage.networks).length > 0
      ? {
          networks: Object.fromEntries(
            Object.entries(usage.networks).map(([name, counters]) => [name, network(counters)]),
          ),
        }
      : {}),
  })}\n`;
}

function cpu(usage: CpuUsage | undefined): unknown {
  return {
    cpu_usage: {
      total_usage: usage?.totalNs ?? 0,
      ...(usage?.perCpuNs?.length ? { percpu_usage: usage.perCpuNs } : {}),
      usage_in_kernelmode: usage?.kernelNs ?? 0,
      usage_in_usermode: usage?.userNs ?? 0,
    },
    ...(usage ? { system_cpu_usage: usage.systemNs, online_cpus: usage.onlineCpus } : {}),
    throttling_data: {
      periods: usage?.throttling.periods ?? 0,
      throttled_periods: usage?.throttling.throttledPeriods ?? 0,
      throttled_time: usage?.throttling.throttledNs ?? 0,
    },
  };
}

function memory({ usage, maxUsage = 0n, limit, failcnt, stats }: MemoryUsage): unknown {
  const { usage: used, max_usage, ...rest } = withoutZeros({ usage, max_usage: maxUsage, failcnt, limit });
  return {
    ...(used === undefined ? {} : { usage: used }),
    ...(max_usage === undefined ? {} : { max_usage }),
    stats,
    ...rest,
  };
}

function blockIo(usage: BlockIoUsage): unknown {
  return Object.fromEntries(BLOCK_IO_COUNTERS.map((counter) => [counter, usage[counter]]));
}

function network(counters: InterfaceUsage): unknown {
  return {
    rx_bytes: counters.rxBytes,
    rx_packets: counters.rxPackets,
    rx_errors: counters.rxErrors,
    rx_dropped: counters.rxDropped,
    tx_bytes: counters.txBytes,
    tx_packets: counters.txPackets,
    tx_errors: counters.txErrors,
    tx_dropped: counters.txDropped,
  };
}

/** Leaves out the numbers that are 0. */
function withoutZeros(numbers: Readonly<Record<string, bigint>>): Record<string, bigint> {
  return Object.fromEntries(Object.entries(numbers).filter(([, value]) => value !== 0n));
}
