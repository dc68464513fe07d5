/**
 * Statistics as the Engine API shows them. The text is put together from its parts, as objects for it would cost three
 * times as much, and a client may ask for all containers at once.
 */
import {
  BLOCK_IO_COUNTERS,
  type BlockIoEntry,
  type BlockIoUsage,
  type ContainerUsage,
  type CpuUsage,
  type InterfaceUsage,
  type MemoryUsage,
} from '../../ports/stats.js';

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
  return (
    `{"name":${JSON.stringify(container.name)},"id":"${container.id}",` +
    `"read":"${usage?.readAt ?? NEVER}","preread":"${previous?.readAt ?? NEVER}",` +
    `"pids_stats":{${usage ? pids(usage.pids) : ''}},` +
    `"blkio_stats":{${blockIo(usage?.blockIo)}},` +
    // The next two are for another operating system.
    `"num_procs":0,"storage_stats":{},` +
    `"cpu_stats":${cpu(usage?.cpu)},"precpu_stats":${cpu(previous?.cpu)},` +
    `"memory_stats":{${usage ? memory(usage.memory) : ''}}${networks(usage?.networks)}}\n`
  );
}

function pids({ current, limit }: ContainerUsage['pids']): string {
  return nonzero([
    ['current', current],
    ['limit', limit],
  ]);
}

function cpu(usage: CpuUsage | undefined): string {
  const { periods = 0n, throttledPeriods = 0n, throttledNs = 0n } = usage?.throttling ?? {};
  const perCpu = usage?.perCpuNs?.length ? `"percpu_usage":[${usage.perCpuNs.join()}],` : '';
  return (
    `{"cpu_usage":{"total_usage":${usage?.totalNs ?? 0n},${perCpu}` +
    `"usage_in_kernelmode":${usage?.kernelNs ?? 0n},"usage_in_usermode":${usage?.userNs ?? 0n}},` +
    (usage ? `"system_cpu_usage":${usage.systemNs},"online_cpus":${usage.onlineCpus},` : '') +
    `"throttling_data":{"periods":${periods},"throttled_periods":${throttledPeriods},"throttled_time":${throttledNs}}}`
  );
}

function memory({ usage, maxUsage = 0n, limit, failcnt, stats: { names, values } }: MemoryUsage): string {
  let stats = '';
  for (let index = 0; index < names.length; index++)
    stats += `${index === 0 ? '' : ','}"${names[index]}":${values.at(index) ?? 0n}`;
  return joined([
    nonzero([
      ['usage', usage],
      ['max_usage', maxUsage],
    ]),
    `"stats":{${stats}}`,
    nonzero([
      ['failcnt', failcnt],
      ['limit', limit],
    ]),
  ]);
}

function blockIo(usage: BlockIoUsage | undefined): string {
  return BLOCK_IO_COUNTERS.map((counter) => {
    const entries = usage?.[counter] ?? null;
    return `"${counter}":${entries && `[${entries.map(blockIoEntry).join()}]`}`;
  }).join();
}

function blockIoEntry({ major, minor, op, value }: BlockIoEntry): string {
  return `{"major":${major},"minor":${minor},"op":${JSON.stringify(op)},"value":${value}}`;
}

function networks(usage: ContainerUsage['networks'] = {}): string {
  const members = Object.entries(usage).map(([name, counters]) => `${JSON.stringify(name)}:${network(counters)}`);
  return members.length === 0 ? '' : `,"networks":{${members.join()}}`;
}

function network(counters: InterfaceUsage): string {
  return (
    `{"rx_bytes":${counters.rxBytes},"rx_packets":${counters.rxPackets},` +
    `"rx_errors":${counters.rxErrors},"rx_dropped":${counters.rxDropped},` +
    `"tx_bytes":${counters.txBytes},"tx_packets":${counters.txPackets},` +
    `"tx_errors":${counters.txErrors},"tx_dropped":${counters.txDropped}}`
  );
}

/** Members without those that are 0. */
function nonzero(members: readonly (readonly [name: string, value: bigint])[]): string {
  return joined(members.map(([name, value]) => (value === 0n ? '' : `"${name}":${value}`)));
}

function joined(parts: readonly string[]): string {
  return parts.filter((part) => part !== '').join();
}
