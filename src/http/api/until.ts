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
const DURATION = /^[+-]?(?:(?:\d+(?:\.\d*)?|\.\d+)(?:ns|us|\u00b5s|ms|s|m|h))+$/;
const DATE = /^(\d{4}-\d\d-\d\d)(?:T(\d\d)(?::(\d\d)(?::(\d\d(?:\.\d{1,9})?))?)?)?(Z|[+-]\d\d:\d\d)?$/;

/**
 * Returns milliseconds since the epoch for a Unix time, a duration before `nowMs`, or a date that may have a time, to
 * the hour at least, and a zone: without one it is in that of the daemon. Throws `invalid` for anything else.
 */
export function parseInstant(text: string, nowMs: number): number {
  if (/^\d+(?:\.\d+)?$/.test(text)) return Number(text) * 1000;
  if (DURATION.test(text)) {
    let span = 0;
    for (const [, amount = '0', unit = ''] of text
      .replace(/^[+-]/, '')
      .matchAll(/(\d+(?:\.\d*)?|\.\d+)(ns|us|\u00b5s|ms|s|m|h)/gy))
      span += Number(amount) * (UNITS[unit] ?? 0);
    return text.startsWith('-') ? nowMs + span : nowMs - span;
  }
  const [whole, date, hour = '00', minute = '00', second = '00', zone = ''] = DATE.exec(text) ?? [];
  const at = whole === undefined ? Number.NaN : Date.parse(`${date}T${hour}:${minute}:${second}${zone}`);
  if (Number.isNaN(at))
    throw invalid(`failed to parse value as time or duration: ${JSON.stringify(text)}`, { code: 'INVALID_FILTER' });
  return at;
}

/**
 * Returns the one `until` of a prune filter, as `parseInstant` does; undefined when it is absent. Throws `invalid` for
 * several, and for none in a filter that is there: a bound that says nothing must not remove everything.
 */
export function untilOf(filters: Filters, nowMs: number): number | undefined {
  const [text, ...more] = filters.get('until');
  if (more.length > 0) throw invalid('more than one until filter specified', { code: 'INVALID_FILTER' });
  if (text === undefined && filters.has('until')) throw invalid("invalid filter 'until'", { code: 'INVALID_FILTER' });
  return text === undefined ? undefined : parseInstant(text, nowMs);
}
