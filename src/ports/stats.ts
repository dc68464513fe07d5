/**
 * Contract of the statistics of running containers. Counters are bigints, because nanoseconds pass 2^53 within days on
 * a large host.
 */

export interface CpuUsage {
  /** Nanoseconds. */
  readonly totalNs: bigint;
  readonly kernelNs: bigint;
  readonly userNs: bigint;
  /** Time by processor; cgroup v1 only. */
  readonly perCpuNs?: readonly bigint[];
  /** Time of all processors of the host, idle time included. */
  readonly systemNs: bigint;
  readonly onlineCpus: number;
  readonly throttling: { readonly periods: bigint; readonly throttledPeriods: bigint; readonly throttledNs: bigint };
}

export interface MemoryUsage {
  /** Bytes. */
  readonly usage: bigint;
  /** The highest usage so far; cgroup v1 only. */
  readonly maxUsage?: bigint;
  /** At most the memory of the host. */
  readonly limit: bigint;
  readonly failcnt: bigint;
  readonly stats: MemoryStats;
}

/** Lines of the kernel's `memory.stat`, which differ between cgroup v1 and v2. */
export interface MemoryStats {
  readonly names: readonly string[];
  /** The value of each name is at its index. */
  readonly values: readonly bigint[];
}

export interface BlockIoEntry {
  readonly major: number;
  readonly minor: number;
  /** `read`, `write`, on cgroup v1 also `Sync` and others, capitalised. */
  readonly op: string;
  readonly value: bigint;
}

export const BLOCK_IO_COUNTERS = [
  'io_service_bytes_recursive',
  'io_serviced_recursive',
  'io_queue_recursive',
  'io_service_time_recursive',
  'io_wait_time_recursive',
  'io_merged_recursive',
  'io_time_recursive',
  'sectors_recursive',
] as const;

/** Entries by the name of the counter in the Engine API; null if the kernel does not count them. */
export type BlockIoUsage = Readonly<Record<(typeof BLOCK_IO_COUNTERS)[number], readonly BlockIoEntry[] | null>>;

export interface InterfaceUsage {
  readonly rxBytes: bigint;
  readonly rxPackets: bigint;
  readonly rxErrors: bigint;
  readonly rxDropped: bigint;
  readonly txBytes: bigint;
  readonly txPackets: bigint;
  readonly txErrors: bigint;
  readonly txDropped: bigint;
}

export interface ContainerUsage {
  /** RFC 3339 with nanoseconds. */
  readonly readAt: string;
  readonly cpu: CpuUsage;
  readonly memory: MemoryUsage;
  readonly blockIo: BlockIoUsage;
  /** Without a limit, `limit` is 0 on cgroup v1, and the largest number on v2, as in the kernel's interfaces. */
  readonly pids: { readonly current: bigint; readonly limit: bigint };
  /** By interface of the container's own network; undefined if it uses the host's. */
  readonly networks: Readonly<Record<string, InterfaceUsage>> | undefined;
}

export interface StatsTarget {
  /** 64 hex digits. */
  readonly id: string;
  /** Host pid of init. */
  readonly pid: number;
  readonly usesHostNetwork: boolean;
}

export interface StatsReader {
  /** Reads all counters of a running container once. @throws EngineError not-found when it has ended. */
  read(target: StatsTarget): Promise<ContainerUsage>;
}
