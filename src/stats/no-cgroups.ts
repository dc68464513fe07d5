/** Counts nothing, for containers of an ordinary user that have no groups: those of the daemon count others, too. */
import { BLOCK_IO_COUNTERS, type BlockIoUsage } from '../ports/stats.js';
import type { CgroupReader } from './cgroup-reader.js';

export const noCgroups: CgroupReader = {
  controllers: [],
  read: () => ({
    cpu: {
      totalNs: 0n,
      kernelNs: 0n,
      userNs: 0n,
      throttling: { periods: 0n, throttledPeriods: 0n, throttledNs: 0n },
    },
    memory: { usage: 0n, limit: 0n, failcnt: 0n, stats: { names: [], values: [] } },
    blockIo: Object.fromEntries(BLOCK_IO_COUNTERS.map((name) => [name, null])) as unknown as BlockIoUsage,
    pids: { current: 0n, limit: 0n },
  }),
};
