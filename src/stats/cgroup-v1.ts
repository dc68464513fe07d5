/** Reads counters of a container from the controllers of cgroup v1. */
import { readdirSync } from 'node:fs';
import { BLOCK_IO_COUNTERS, type BlockIoEntry, type BlockIoUsage } from '../ports/stats.js';
import type { CgroupReader, CgroupUsage } from './cgroup-reader.js';
import { lineReader, namedNumbers, oneNumber, ticksToNs } from './counters.js';

const CONTROLLERS = ['cpu', 'cpuacct', 'memory', 'blkio', 'pids'];

const MEMORY_STATS = [
  'cache',
  'rss',
  'rss_huge',
  'mapped_file',
  'dirty',
  'writeback',
  'pgpgin',
  'pgpgout',
  'pgfault',
  'pgmajfault',
  'inactive_anon',
  'active_anon',
  'inactive_file',
  'active_file',
  'unevictable',
];
const MEMORY_LINES = [
  ...MEMORY_STATS,
  'hierarchical_memory_limit',
  'hierarchical_memsw_limit',
  ...MEMORY_STATS.map((name) => `total_${name}`),
];
const memoryLines = lineReader(MEMORY_LINES);

/** File names of the counters without `blkio.` and `_recursive`; every scheduler that counts has some of them. */
const BLOCK_IO_FILES: Readonly<Record<(typeof BLOCK_IO_COUNTERS)[number], string>> = {
  io_service_bytes_recursive: 'io_service_bytes',
  io_serviced_recursive: 'io_serviced',
  io_queue_recursive: 'io_queued',
  io_service_time_recursive: 'io_service_time',
  io_wait_time_recursive: 'io_wait_time',
  io_merged_recursive: 'io_merged',
  io_time_recursive: 'time',
  sectors_recursive: 'sectors',
};
/** Prefixes of the schedulers' counters; those of the throttling layer exist with any scheduler. */
const SCHEDULERS = ['blkio.', 'blkio.bfq.'];
const THROTTLE = 'blkio.throttle.';

type BlockIoFile = readonly [counter: (typeof BLOCK_IO_COUNTERS)[number], name: string];
/** Reads a file of one group by the name of its controller; undefined when it is not there. */
type GroupFile = (controller: string, name: string) => string | undefined;

/**
 * Makes the reader. `controllers` are the mount points. The kernel is asked for the group's path in each controller.
 */
export function openCgroupV1(controllers: ReadonlyMap<string, string>): CgroupReader {
  const blkio = controllers.get('blkio');
  const names = new Set(blkio === undefined ? [] : readdirSync(blkio));
  const blockIoFiles = (prefixes: readonly string[]): BlockIoFile[] =>
    BLOCK_IO_COUNTERS.flatMap((counter) =>
      prefixes.map((prefix): BlockIoFile => [counter, `${prefix}${BLOCK_IO_FILES[counter]}_recursive`]),
    ).filter(([, file]) => names.has(file));
  const ofSchedulers = blockIoFiles(SCHEDULERS);
  const ofThrottle = blockIoFiles([THROTTLE]);
  return {
    controllers: CONTROLLERS,
    read(group, files) {
      const directories = new Map<string, string>();
      for (const controller of CONTROLLERS) {
        const [mount, path] = [controllers.get(controller), group(controller)];
        if (mount !== undefined && path !== undefined) directories.set(controller, mount + path);
      }
      const file: GroupFile = (controller, name) => {
        const directory = directories.get(controller);
        // A missing controller counts nothing; a missing group is noticed below.
        return directory === undefined ? undefined : files.read(directory, name);
      };
      const [cpu, memory] = [readCpu(file), readMemory(file)];
      if (!cpu.isThere && !memory.isThere) return undefined;
      const scheduled = readBlockIo(file, ofSchedulers);
      return {
        cpu: cpu.usage,
        memory: memory.usage,
        blockIo: Object.values(scheduled).some((entries) => entries?.length)
          ? scheduled
          : readBlockIo(file, ofThrottle),
        pids: readPids(file),
      };
    },
  };
}

/** The counters of a controller, and whether it has the group at all. */
interface Counted<Usage> {
  readonly isThere: boolean;
  readonly usage: Usage;
}

function readCpu(file: GroupFile): Counted<CgroupUsage['cpu']> {
  // The kernel's file of the total is the sum of these, too.
  const perCpu = file('cpuacct', 'cpuacct.usage_percpu');
  const perCpuNs = (perCpu ?? '').trim().split(' ').filter(Boolean).map(BigInt);
  const ticks = namedNumbers(file('cpuacct', 'cpuacct.stat'));
  const quota = namedNumbers(file('cpu', 'cpu.stat'));
  return {
    isThere: perCpu !== undefined,
    usage: {
      totalNs: perCpuNs.reduce((sum, ns) => sum + ns, 0n),
      kernelNs: ticksToNs(ticks.get('system') ?? 0n),
      userNs: ticksToNs(ticks.get('user') ?? 0n),
      perCpuNs,
      throttling: {
        periods: quota.get('nr_periods') ?? 0n,
        throttledPeriods: quota.get('nr_throttled') ?? 0n,
        throttledNs: quota.get('throttled_time') ?? 0n,
      },
    },
  };
}

function readMemory(file: GroupFile): Counted<CgroupUsage['memory']> {
  const usage = file('memory', 'memory.usage_in_bytes');
  return {
    isThere: usage !== undefined,
    usage: {
      usage: oneNumber(usage, 0n),
      maxUsage: oneNumber(file('memory', 'memory.max_usage_in_bytes'), 0n),
      limit: oneNumber(file('memory', 'memory.limit_in_bytes'), 0n),
      failcnt: oneNumber(file('memory', 'memory.failcnt'), 0n),
      stats: { names: MEMORY_LINES, values: memoryLines(file('memory', 'memory.stat')) },
    },
  };
}

function readPids(file: GroupFile): CgroupUsage['pids'] {
  return { current: oneNumber(file('pids', 'pids.current'), 0n), limit: oneNumber(file('pids', 'pids.max'), 0n) };
}

function readBlockIo(file: GroupFile, files: readonly BlockIoFile[]): BlockIoUsage {
  const usage: Record<string, BlockIoEntry[]> = Object.fromEntries(BLOCK_IO_COUNTERS.map((counter) => [counter, []]));
  for (const [counter, name] of files) usage[counter]?.push(...parseBlockIo(file('blkio', name)));
  return usage as unknown as BlockIoUsage;
}

/** Parses lines of `major:minor operation number`, or without an operation; the sum over all devices is left out. */
function parseBlockIo(text: string | undefined): BlockIoEntry[] {
  return (text ?? '').split('\n').flatMap((line) => {
    const [, major, minor, op = '', value] = /^(\d+):(\d+)(?: (\w+))? (\d+)$/.exec(line) ?? [];
    return value === undefined ? [] : [{ major: Number(major), minor: Number(minor), op, value: BigInt(value) }];
  });
}
