/**
 * Usages of several containers on their way out of the thread that reads them: all counters are in one array. A copy of
 * the objects, with some sixty counters each, would cost the main thread as much as all else that it does for a reply.
 */
import {
  BLOCK_IO_COUNTERS,
  type BlockIoEntry,
  type BlockIoUsage,
  type ContainerUsage,
  type CpuUsage,
  type InterfaceUsage,
} from '../ports/stats.js';

/** Counters and texts are unpacked in the order in which they were packed. */
export interface PackedUsages {
  readonly counts: BigUint64Array;
  readonly texts: readonly string[];
  /** Those of the lines of `memory.stat`, by container. */
  readonly memoryNames: readonly (readonly string[] | undefined)[];
}

/** A number in the place of what is not there. */
const NONE = 2n ** 64n - 1n;

export function packUsages(usages: readonly (ContainerUsage | undefined)[]): PackedUsages {
  const counts: bigint[] = [];
  const texts: string[] = [];
  for (const usage of usages) if (usage !== undefined) packOne(usage, counts, texts);
  return {
    counts: BigUint64Array.from(counts),
    texts,
    memoryNames: usages.map((usage) => usage?.memory.stats.names),
  };
}

function packOne(
  { readAt, cpu, memory, blockIo, pids, networks }: ContainerUsage,
  counts: bigint[],
  texts: string[],
): void {
  texts.push(readAt);
  const { throttling } = cpu;
  counts.push(cpu.totalNs, cpu.kernelNs, cpu.userNs, cpu.systemNs, BigInt(cpu.onlineCpus));
  counts.push(throttling.periods, throttling.throttledPeriods, throttling.throttledNs);
  packList(cpu.perCpuNs, counts, (ns) => counts.push(ns));
  counts.push(memory.usage, memory.maxUsage ?? NONE, memory.limit, memory.failcnt, ...memory.stats.values);
  counts.push(pids.current, pids.limit);
  for (const counter of BLOCK_IO_COUNTERS)
    packList(blockIo[counter] ?? undefined, counts, ({ major, minor, op, value }) => {
      counts.push(BigInt(major), BigInt(minor), value);
      texts.push(op);
    });
  packList(networks && Object.entries(networks), counts, ([name, usage]) => {
    texts.push(name);
    counts.push(usage.rxBytes, usage.rxPackets, usage.rxErrors, usage.rxDropped);
    counts.push(usage.txBytes, usage.txPackets, usage.txErrors, usage.txDropped);
  });
}

function packList<T>(list: readonly T[] | undefined, counts: bigint[], pack: (item: T) => void): void {
  counts.push(list === undefined ? NONE : BigInt(list.length));
  list?.forEach(pack);
}

export function unpackUsages({ counts, texts, memoryNames }: PackedUsages): (ContainerUsage | undefined)[] {
  const packed = new Packed(counts, texts);
  return memoryNames.map((names) => names && unpackOne(packed, names));
}

/** Each member takes its counters in turn, so all are in the order of `packOne`. */
function unpackOne(packed: Packed, names: readonly string[]): ContainerUsage {
  const readAt = packed.text();
  const cpu = unpackCpu(packed);
  const [usage, maxUsage, limit, failcnt] = [packed.count(), packed.count(), packed.count(), packed.count()];
  const values = names.map(() => packed.count());
  const pids = { current: packed.count(), limit: packed.count() };
  const blockIo = unpackBlockIo(packed);
  const networks = packed.list((): [string, InterfaceUsage] => [packed.text(), unpackInterface(packed)]);
  return {
    readAt,
    cpu,
    memory: { usage, ...(maxUsage === NONE ? {} : { maxUsage }), limit, failcnt, stats: { names, values } },
    pids,
    blockIo,
    networks: networks && Object.fromEntries(networks),
  };
}

function unpackCpu(packed: Packed): CpuUsage {
  const [totalNs, kernelNs, userNs] = [packed.count(), packed.count(), packed.count()];
  const [systemNs, onlineCpus] = [packed.count(), Number(packed.count())];
  const [periods, throttledPeriods, throttledNs] = [packed.count(), packed.count(), packed.count()];
  const perCpuNs = packed.list(() => packed.count());
  const throttling = { periods, throttledPeriods, throttledNs };
  return { totalNs, kernelNs, userNs, systemNs, onlineCpus, throttling, ...(perCpuNs && { perCpuNs }) };
}

function unpackBlockIo(packed: Packed): BlockIoUsage {
  const usage: Partial<Record<keyof BlockIoUsage, readonly BlockIoEntry[] | null>> = {};
  for (const counter of BLOCK_IO_COUNTERS) {
    const entries = packed.list((): BlockIoEntry => {
      const [major, minor, value] = [Number(packed.count()), Number(packed.count()), packed.count()];
      return { major, minor, op: packed.text(), value };
    });
    usage[counter] = entries ?? null;
  }
  return usage as BlockIoUsage;
}

function unpackInterface(packed: Packed): InterfaceUsage {
  const [rxBytes, rxPackets, rxErrors, rxDropped] = [packed.count(), packed.count(), packed.count(), packed.count()];
  const [txBytes, txPackets, txErrors, txDropped] = [packed.count(), packed.count(), packed.count(), packed.count()];
  return { rxBytes, rxPackets, rxErrors, rxDropped, txBytes, txPackets, txErrors, txDropped };
}

class Packed {
  #count = 0;
  #text = 0;

  constructor(
    private readonly counts: BigUint64Array,
    private readonly texts: readonly string[],
  ) {}

  count(): bigint {
    return this.counts[this.#count++] ?? 0n;
  }

  text(): string {
    return this.texts[this.#text++] ?? '';
  }

  list<T>(unpack: () => T): T[] | undefined {
    const length = this.count();
    return length === NONE ? undefined : Array.from({ length: Number(length) }, unpack);
  }
}
