/** Chooses the records that a prune removes, by the rules of BuildKit. */
import type { CachePrune, CacheUsage } from '../../ports/build.js';
import { type CacheEntry, describeEntries } from './record-index.js';

export interface PruneScene {
  /** Parents before their children. */
  readonly entries: readonly CacheEntry[];
  readonly isShared: (entry: CacheEntry) => boolean;
  readonly nowMs: number;
  /** Bytes that are free on the disk. */
  readonly freeBytes: number;
}

/**
 * Returns the records to remove, children before their parents. A record stays while it is used and while a record
 * that stands on it stays. With limits, those that are used least and longest ago go first, and only until the limits
 * are kept.
 */
export function planPrune(selection: CachePrune, scene: PruneScene): { entry: CacheEntry; usage: CacheUsage }[] {
  const { entries, isShared } = scene;
  let total = 0;
  for (const entry of entries) if (!isShared(entry)) total += entry.sizeBytes;
  const kept = keptBytes(selection, total, scene.freeBytes);
  // This is so after most builds, so it must be cheap.
  if (kept !== 0 && total < kept) return [];
  const usages = describeEntries(entries, isShared);
  const usageOf = new Map(entries.map((entry, index) => [entry, usages[index]]));
  const chosen = entries.filter((entry) => {
    const usage = usageOf.get(entry);
    return usage !== undefined && entry.holds === 0 && mayGo(usage, selection, scene.nowMs);
  });
  const may = new Set(chosen);
  const gone = new Set<CacheEntry>();
  for (const entry of kept === 0 ? entries.toReversed() : inOrderOfWorth(entries, chosen)) {
    if (kept !== 0 && total < kept) break;
    if (!may.has(entry) || [...entry.children].some((child) => !gone.has(child))) continue;
    gone.add(entry);
    const usage = usageOf.get(entry);
    if (usage?.shared === false) total -= usage.size;
  }
  return [...gone].flatMap((entry) => {
    const usage = usageOf.get(entry);
    return usage === undefined ? [] : { entry, usage };
  });
}

function mayGo(usage: CacheUsage, { all, keepDurationMs, selects }: CachePrune, nowMs: number): boolean {
  if (!all && (usage.type === 'internal' || usage.type === 'frontend' || usage.shared)) return false;
  if (keepDurationMs > 0 && usage.lastUsedAt !== undefined && usage.lastUsedAt > nowMs - keepDurationMs) return false;
  return selects(usage);
}

/** Returns how many bytes may stay; 0 means that there is no limit to stop at. */
function keptBytes(
  { reservedSpace, maxUsedSpace, minFreeSpace }: CachePrune,
  totalBytes: number,
  freeBytes: number,
): number {
  if (reservedSpace === 0 && maxUsedSpace === 0 && minFreeSpace === 0) return 0;
  const excess = minFreeSpace - freeBytes;
  let kept = maxUsedSpace;
  if (excess > 0) kept = Math.min(kept === 0 ? Infinity : kept, totalBytes - excess);
  return Math.max(kept, reservedSpace);
}

/**
 * Sorts the entries by their worth, the least first. A parent is worth as much as the best of its children, because it
 * cannot go before them.
 */
function inOrderOfWorth(entries: readonly CacheEntry[], chosen: readonly CacheEntry[]): CacheEntry[] {
  const age = ranks(chosen, ({ lastUsedAt }) => lastUsedAt ?? 0);
  const use = ranks(chosen, ({ usageCount }) => usageCount);
  const worth = new Map<CacheEntry, number>();
  const children = entries.toReversed();
  for (const entry of children) {
    const own = (age.get(entry) ?? 0) + (use.get(entry) ?? 0);
    let best = own;
    for (const child of entry.children) best = Math.max(best, worth.get(child) ?? 0);
    worth.set(entry, best);
  }
  // The sort is stable, so children stay before parents of the same worth.
  return children.sort((a, b) => (worth.get(a) ?? 0) - (worth.get(b) ?? 0));
}

/** Returns the place of each entry among the different values, from 0 to 1. */
function ranks(entries: readonly CacheEntry[], value: (entry: CacheEntry) => number): Map<CacheEntry, number> {
  const places = [...new Set(entries.map(value))].sort((a, b) => a - b);
  const rankOf = new Map(places.map((each, index) => [each, (index + 1) / places.length]));
  return new Map(entries.map((entry) => [entry, rankOf.get(value(entry)) ?? 0]));
}
