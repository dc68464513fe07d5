/** Points in time as filters carry them. */
import { invalid } from '../../errors/engine-error.js';
import type { Filters } from './filters.js';

const UNITS: Readonly<Record<string, number>> = {
  ns: 1e-6,
  us: 1e-3,
  '\u00b5s': 1e-3,
  ms: 1,
  s: 1000,
  m: 60_000,
  h: 3_600_000,
};
const DURATION = /^(?:\d+(?:\.\d+)?(?:ns|us|\u00b5s|ms|s|m|h))+$/;

/**
 * Returns milliseconds since the epoch for a Unix time, an RFC 3339 time or date, or a duration before `nowMs`. Throws
 * `invalid` for anything else.
 */
export function parseInstant(text: string, nowMs: number): number {
  if (/^\d+(?:\.\d+)?$/.test(text)) return Number(text) * 1000;
  if (DURATION.test(text)) {
    let span = 0;
    for (const [, amount = '0', unit = ''] of text.matchAll(/(\d+(?:\.\d+)?)(ns|us|\u00b5s|ms|s|m|h)/gy))
      span += Number(amount) * (UNITS[unit] ?? 0);
    return nowMs - span;
  }
  const at = /^\d{4}-\d{2}-\d{2}/.test(text) ? Date.parse(text) : Number.NaN;
  if (Number.isNaN(at))
    throw invalid(`failed to parse value as time or duration: ${JSON.stringify(text)}`, { code: 'INVALID_FILTER' });
  return at;
}

/**
 * Returns the one `until` of a prune filter, as `parseInstant` does; undefined when it is absent. Throws `invalid` for
 * several.
 */
export function untilOf(filters: Filters, nowMs: number): number | undefined {
  const [text, ...more] = filters.get('until');
  if (more.length > 0) throw invalid('more than one until filter specified', { code: 'INVALID_FILTER' });
  return text === undefined ? undefined : parseInstant(text, nowMs);
}
