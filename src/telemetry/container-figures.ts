/**
 * Metrics of single containers as text. They are not kept between two readings: a container that is gone has none. The
 * only label that clients choose is the container's name, so there are as many series of each kind as containers.
 */
import type { BlockIoEntry, ContainerUsage, InterfaceUsage } from '../ports/stats.js';
import { inTurns, type Parts } from '../text/turns.js';

export interface ContainerFigures {
  /** Name without a slash. */
  readonly name: string;
  readonly isRunning: boolean;
  /** Seconds since 1970; undefined when it does not run. */
  readonly startedAt: number | undefined;
  readonly exitCode: number | undefined;
  /** How often the restart policy has started it since a client did. */
  readonly restarts: number;
  /** Undefined without a health check. */
  readonly health: 'starting' | 'healthy' | 'unhealthy' | undefined;
  /** Undefined when it does not run. */
  readonly usage: ContainerUsage | undefined;
}

interface Family {
  readonly name: string;
  readonly type: 'counter' | 'gauge';
  readonly help: string;
  /** Undefined: the container has no such series. */
  readonly value: (figures: ContainerFigures) => number | undefined;
  /** A second label, with its value. */
  readonly label?: (figures: ContainerFigures) => string;
}

const NS_PER_SECOND = 1e9;
/** Lines between two looks at the clock. */
const LINES_PER_PART = 200;

/** Families whose value is read from the usage. */
function usageFamily(
  type: Family['type'],
  name: string,
  help: string,
  read: (usage: ContainerUsage) => bigint | undefined,
  unit = 1,
): Family {
  const value = ({ usage }: ContainerFigures): number | undefined => {
    const count = usage && read(usage);
    return count === undefined ? undefined : Number(count) / unit;
  };
  return { name: `engine_container_${name}`, type, help, value };
}

/** The kernel counts read bytes under `read` or `Read`, depending on the version of control groups. */
function blockBytes({ blockIo }: ContainerUsage, wanted: 'read' | 'write'): bigint {
  const entries = blockIo.io_service_bytes_recursive ?? [];
  return entries.reduce((sum, { op, value }: BlockIoEntry) => (op.toLowerCase() === wanted ? sum + value : sum), 0n);
}

/** Returns the sum over all interfaces; undefined when the network is the host's. */
function traffic({ networks }: ContainerUsage, count: (usage: InterfaceUsage) => bigint): bigint | undefined {
  return networks && Object.values(networks).reduce((sum, usage) => sum + count(usage), 0n);
}

/** Memory without the part of the page cache that is given back first, as `docker stats` shows it. */
function workingSet({ memory: { usage, stats } }: ContainerUsage): bigint {
  const stat = (name: string): bigint | undefined => {
    const place = stats.names.indexOf(name);
    return place < 0 ? undefined : stats.values.at(place);
  };
  const inactive = stat('total_inactive_file') ?? stat('inactive_file') ?? 0n;
  return inactive < usage ? usage - inactive : usage;
}

const NETWORK: readonly (readonly [name: string, help: string, count: (usage: InterfaceUsage) => bigint])[] = [
  ['receive_bytes', 'Bytes received', (usage) => usage.rxBytes],
  ['receive_packets', 'Packets received', (usage) => usage.rxPackets],
  ['receive_errors', 'Errors of receiving', (usage) => usage.rxErrors],
  ['receive_dropped', 'Packets dropped on receipt', (usage) => usage.rxDropped],
  ['transmit_bytes', 'Bytes sent', (usage) => usage.txBytes],
  ['transmit_packets', 'Packets sent', (usage) => usage.txPackets],
  ['transmit_errors', 'Errors of sending', (usage) => usage.txErrors],
  ['transmit_dropped', 'Packets dropped on sending', (usage) => usage.txDropped],
];

const FAMILIES: readonly Family[] = [
  {
    name: 'engine_container_running',
    type: 'gauge',
    help: 'Whether the container runs',
    value: ({ isRunning }) => Number(isRunning),
  },
  {
    name: 'engine_container_start_time_seconds',
    type: 'gauge',
    help: 'Start of the running container, in seconds since 1970',
    value: ({ startedAt }) => startedAt,
  },
  {
    name: 'engine_container_exit_code',
    type: 'gauge',
    help: 'Exit code of the container that has ended',
    value: ({ exitCode }) => exitCode,
  },
  {
    name: 'engine_container_restarts_total',
    type: 'counter',
    help: 'Starts by the restart policy since a client has started it',
    value: ({ restarts }) => restarts,
  },
  {
    name: 'engine_container_health',
    type: 'gauge',
    help: '1 in the state that the health check has found',
    value: ({ health }) => (health === undefined ? undefined : 1),
    label: ({ health }) => `state="${health}"`,
  },
  usageFamily('counter', 'cpu_seconds_total', 'Processor time', ({ cpu }) => cpu.totalNs, NS_PER_SECOND),
  usageFamily('counter', 'cpu_user_seconds_total', 'Of it in programs', ({ cpu }) => cpu.userNs, NS_PER_SECOND),
  usageFamily('counter', 'cpu_system_seconds_total', 'Of it in the kernel', ({ cpu }) => cpu.kernelNs, NS_PER_SECOND),
  usageFamily(
    'counter',
    'cpu_throttled_seconds_total',
    'Time that a limit has kept it from running',
    ({ cpu }) => cpu.throttling.throttledNs,
    NS_PER_SECOND,
  ),
  usageFamily('gauge', 'memory_usage_bytes', 'Memory with page cache', ({ memory }) => memory.usage),
  usageFamily('gauge', 'memory_working_set_bytes', 'Memory without inactive page cache', workingSet),
  usageFamily('gauge', 'memory_limit_bytes', 'Limit of memory, the memory of the host without', (u) => u.memory.limit),
  usageFamily('counter', 'memory_failures_total', 'How often the limit was met', ({ memory }) => memory.failcnt),
  usageFamily('counter', 'block_read_bytes_total', 'Bytes read from disks', (usage) => blockBytes(usage, 'read')),
  usageFamily('counter', 'block_write_bytes_total', 'Bytes written to disks', (usage) => blockBytes(usage, 'write')),
  ...NETWORK.map(([name, help, count]) =>
    usageFamily('counter', `network_${name}_total`, help, (usage) => traffic(usage, count)),
  ),
  usageFamily('gauge', 'processes', 'Processes and threads', ({ pids }) => pids.current),
];

/** Writes the metrics of all containers, in parts between which requests are served. */
export function containerFiguresText(containers: readonly ContainerFigures[]): Promise<string> {
  return inTurns(lines(containers));
}

function* lines(containers: readonly ContainerFigures[]): Parts<string> {
  const labelled = containers.map((figures) => ({ figures, first: `container="${escaped(figures.name)}"` }));
  let text = '';
  let count = 0;
  for (const { name, type, help, value, label } of FAMILIES) {
    text += `# HELP ${name} ${help}\n# TYPE ${name} ${type}\n`;
    for (const { figures, first } of labelled) {
      const number = value(figures);
      if (number === undefined) continue;
      const second = label === undefined ? '' : `,${label(figures)}`;
      text += `${name}{${first}${second}} ${number}\n`;
      if (++count % LINES_PER_PART === 0) yield;
    }
  }
  return text;
}

function escaped(label: string): string {
  return label.replaceAll('\\', '\\\\').replaceAll('"', '\\"').replaceAll('\n', '\\n');
}
