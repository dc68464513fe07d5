/** `POST /build/prune`, by which clients without BuildKit empty the build cache. */
import { EngineError, invalid, isEngineError, messageOf } from '../../errors/engine-error.js';
import { usageFilter } from '../../build/cache/usage-filter.js';
import type { BuildEngine, CachePrune } from '../../ports/build.js';
import { type Filters, parseFilters } from '../api/filters.js';
import { parseInstant } from '../api/until.js';
import type { Exchange } from '../exchange.js';
import { route, type Route } from '../route.js';

const FIELDS = ['id', 'parent', 'type', 'description', 'inuse', 'shared', 'private'];
const KNOWN = [...FIELDS, 'until', 'unused-for', 'label', 'label!'];

export function buildCacheRoutes(engine: Pick<BuildEngine, 'pruneCache'>): Route[] {
  return [
    route('POST', '/build/prune', async (x) => {
      const { removed, reclaimed } = await engine.pruneCache(selectionOf(x));
      const ids = removed.map(({ id }) => id);
      x.sendJson(200, { CachesDeleted: ids.length === 0 ? null : ids, SpaceReclaimed: reclaimed });
    }),
  ];
}

function selectionOf(x: Exchange): CachePrune {
  const filters = parseFilters(x.query.text('filters'));
  const limits = x.atLeast(1, 48)
    ? {
        reservedSpace: bytesOf(x, 'reserved-space') || bytesOf(x, 'keep-storage'),
        maxUsedSpace: bytesOf(x, 'max-used-space'),
        minFreeSpace: bytesOf(x, 'min-free-space'),
      }
    : { reservedSpace: bytesOf(x, 'keep-storage'), maxUsedSpace: 0, minFreeSpace: 0 };
  try {
    filters.allow(KNOWN);
    return {
      all: x.query.flag('all'),
      keepDurationMs: keptSince(filters),
      ...limits,
      selects: usageFilter([termsOf(filters)].filter((terms) => terms !== '')),
    };
  } catch (error) {
    if (!isEngineError(error)) throw error;
    throw new EngineError(error.kind, `failed to prune build cache: ${error.message}`, { cause: error });
  }
}

function bytesOf(x: Exchange, name: string): number {
  const text = x.query.text(name);
  if (text === '') return 0;
  if (!/^[+-]?\d+$/.test(text)) {
    const cause = `strconv.Atoi: parsing ${JSON.stringify(text)}: invalid syntax`;
    throw invalid(`${name} is in bytes and expects an integer, got ${text}: ${cause}`);
  }
  return Math.max(Number(text), 0);
}

/** Returns how old the last use of a record must be. */
function keptSince(filters: Filters): number {
  const [until, unusedFor] = [filters.get('until'), filters.get('unused-for')];
  if (until.length > 0 && unusedFor.length > 0) throw invalid('conflicting filters: "until" and "unused-for"');
  const [text, ...more] = [...until, ...unusedFor];
  if (text === undefined) return 0;
  if (more.length > 0) throw invalid('filters expect only one value');
  const nowMs = Date.now();
  try {
    return nowMs - parseInstant(text, nowMs);
  } catch (error) {
    const name = until.length > 0 ? 'until' : 'unused-for';
    throw invalid(`"${name}" filter expects a duration (e.g., '24h') or a timestamp: ${messageOf(error)}`);
  }
}

function termsOf(filters: Filters): string {
  return FIELDS.flatMap((field) => {
    const [value, ...more] = filters.get(field);
    if (more.length > 0) throw invalid('filters expect only one value');
    if (value === undefined) return [];
    return `${field}${field === 'id' ? '~=' : '=='}${value}`;
  }).join(',');
}
