/** The rules by which the build cache is kept small without being asked. */
import type { CachePrune } from '../../ports/build.js';
import { usageFilter } from './usage-filter.js';

/** A prune with its filters in words; a record is meant when it fits one of them. */
export interface GcRule extends Omit<CachePrune, 'selects'> {
  readonly filters: readonly string[];
}

/** Bytes, or a part of the disk. */
export type GcSize = number | { readonly percent: number };

export interface GcSizes {
  readonly reservedSpace: GcSize;
  readonly maxUsedSpace: GcSize;
  readonly minFreeSpace: GcSize;
}

export interface GcSettings {
  /** 0 means that nothing was said. */
  readonly defaults: GcSizes;
  /** Rules of the operator's own, which take the place of all others. */
  readonly policy:
    | readonly (GcSizes & {
        readonly all: boolean;
        readonly keepDurationMs: number;
        /** Such as `type=regular`; all of them must fit. */
        readonly filter: readonly string[];
      })[]
    | undefined;
}

const HOUR_MS = 3_600_000;
const DAY_MS = 24 * HOUR_MS;
const GIBIBYTE = 1024 ** 3;
const GIGABYTE = 1e9;
/** Files that are easily made again may take this part of the reserved space, and at least so much. */
const TEMPORARY_SHARE = 0.1382;
const MIN_TEMPORARY_BYTES = 512e6;
/** Parts of the disk, in percent, for a daemon that was told nothing. */
const SHARES = { reserved: 10, maxUsed: 80, minFree: 20 };

/** Returns the rules in their order. @param diskBytes is the size of the disk. */
export function gcRules({ defaults, policy }: GcSettings, diskBytes: number): GcRule[] {
  const bytes = (size: GcSize): number =>
    typeof size === 'number' ? size : Math.floor((diskBytes * size.percent) / 100);
  const sizes = ({
    reservedSpace,
    maxUsedSpace,
    minFreeSpace,
  }: GcSizes): Omit<GcRule, 'filters' | 'all' | 'keepDurationMs'> => ({
    reservedSpace: bytes(reservedSpace),
    maxUsedSpace: bytes(maxUsedSpace),
    minFreeSpace: bytes(minFreeSpace),
  });
  if (policy !== undefined)
    return policy.map((rule) => ({
      ...sizes(rule),
      all: rule.all,
      keepDurationMs: rule.keepDurationMs,
      filters: rule.filter.length === 0 ? [] : [rule.filter.map(termOf).join(',')],
    }));
  return defaultRules(sizes(defaults), diskBytes);
}

/** The first rule is for what is easily made again, the others make room: at last with all that there is. */
function defaultRules(given: ReturnType<typeof limitsOf>, diskBytes: number): GcRule[] {
  const isSilent = given.reservedSpace === 0 && given.maxUsedSpace === 0 && given.minFreeSpace === 0;
  const limits = isSilent ? limitsOf(diskBytes) : given;
  const temporary = Math.max(Math.round(limits.reservedSpace * TEMPORARY_SHARE), MIN_TEMPORARY_BYTES);
  const rule = { ...limits, filters: [], all: false, keepDurationMs: 0 };
  return [
    {
      filters: ['type==source.local', 'type==exec.cachemount', 'type==source.git.checkout'],
      all: false,
      keepDurationMs: 48 * HOUR_MS,
      reservedSpace: 0,
      maxUsedSpace: temporary,
      minFreeSpace: 0,
    },
    { ...rule, keepDurationMs: 60 * DAY_MS },
    rule,
    { ...rule, all: true },
  ];
}

function limitsOf(diskBytes: number): Pick<GcRule, 'reservedSpace' | 'maxUsedSpace' | 'minFreeSpace'> {
  const share = (percent: number): number => (Math.floor((diskBytes * percent) / 100 / GIBIBYTE) + 1) * GIGABYTE;
  return {
    reservedSpace: share(SHARES.reserved),
    maxUsedSpace: share(SHARES.maxUsed),
    minFreeSpace: share(SHARES.minFree),
  };
}

/** Turns `name=value` of a configuration into a term of a filter. */
function termOf(text: string): string {
  const at = text.indexOf('=');
  const [name, value] = [text.slice(0, at), text.slice(at + 1)];
  if (/[!~]$/.test(name) || value.startsWith('=')) return text;
  return name === 'id' ? `id~=${value}` : `${name}==${value}`;
}

/** Returns the prune that a rule means. */
export function pruneOf({ filters, ...limits }: GcRule): CachePrune {
  return { ...limits, selects: usageFilter(filters) };
}
