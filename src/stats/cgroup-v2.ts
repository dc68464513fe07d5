/** Reads counters of a container from the unified hierarchy of cgroup v2. */
import { BLOCK_IO_COUNTERS, type BlockIoEntry, type BlockIoUsage } from '../ports/stats.js';
import type { CgroupReader } from './cgroup-reader.js';
import { lineReader, namedNumbers, oneNumber } from './counters.js';

const NS_PER_US = 1000n;
const UNLIMITED = 2n ** 64n - 1n;
const MEMORY_LINES = [
  'anon',
  'file',
  'kernel_stack',
  'slab',
  'sock',
  'shmem',
  'file_mapped',
  'file_dirty',
  'file_writeback',
  'anon_thp',
  'inactive_anon',
  'active_anon',
  'inactive_file',
  'active_file',
  'unevictable',
  'slab_reclaimable',
  'slab_unreclaimable',
  'pgfault',
  'pgmajfault',
  'workingset_refault',
  'workingset_activate',
  'workingset_nodereclaim',
  'pgrefill',
  'pgscan',
  'pgsteal',
  'pgactivate',
  'pgdeactivate',
  'pglazyfree',
  'pglazyfreed',
  'thp_fault_alloc',
  'thp_collapse_alloc',
];
const memoryLines = lineReader(MEMORY_LINES);

export function openCgroupV2(mountPoint: string): CgroupReader {
  return {
    controllers: [''],
    read(group, files) {
      const path = group('');
      if (path === undefined) return undefined;
      // A controller that is not switched on has no files.
      const directory = mountPoint + path;
      const file = (name: string): string | undefined => files.read(directory, name);
      const cpuText = file('cpu.stat');
      if (cpuText === undefined) return undefined;
      const cpu = namedNumbers(cpuText);
      const ns = (name: string): bigint => (cpu.get(name) ?? 0n) * NS_PER_US;
      return {
        cpu: {
          totalNs: ns('usage_usec'),
          kernelNs: ns('system_usec'),
          userNs: ns('user_usec'),
          throttling: {
            periods: cpu.get('nr_periods') ?? 0n,
            throttledPeriods: cpu.get('nr_throttled') ?? 0n,
            throttledNs: ns('throttled_usec'),
          },
        },
        memory: {
          usage: oneNumber(file('memory.current'), 0n),
          limit: oneNumber(file('memory.max'), UNLIMITED),
          failcnt: namedNumbers(file('memory.events')).get('oom') ?? 0n,
          stats: { names: MEMORY_LINES, values: memoryLines(file('memory.stat')) },
        },
        blockIo: parseIoStat(file('io.stat')),
        pids: { current: oneNumber(file('pids.current'), 0n), limit: oneNumber(file('pids.max'), UNLIMITED) },
      };
    },
  };
}

/**
 * Parses lines of `major:minor rbytes=1 wbytes=2 …`. The kernel counts more, but the Engine API shows only the bytes.
 */
function parseIoStat(text: string | undefined): BlockIoUsage {
  const bytes: BlockIoEntry[] = [];
  for (const line of (text ?? '').split('\n')) {
    const device = /^(\d+):(\d+) (.*)$/.exec(line);
    if (!device) continue;
    const [, major, minor, counters = ''] = device;
    for (const [op, name] of [
      ['read', 'rbytes'],
      ['write', 'wbytes'],
    ] as const) {
      bytes.push({
        major: Number(major),
        minor: Number(minor),
        op,
        value: BigInt(new RegExp(`\\b${name}=(\\d+)`).exec(counters)?.[1] ?? 0),
      });
    }
  }
  const none = Object.fromEntries(BLOCK_IO_COUNTERS.map((counter) => [counter, null]));
  return { ...none, io_service_bytes_recursive: bytes.length === 0 ? null : bytes } as unknown as BlockIoUsage;
}
