/** Values in the forms that Go's standard library reads: clients know its words. */
import { DockerfileError } from './dockerfile-error.js';

const TRUE: ReadonlySet<string> = new Set(['1', 't', 'T', 'TRUE', 'true', 'True']);
const FALSE: ReadonlySet<string> = new Set(['0', 'f', 'F', 'FALSE', 'false', 'False']);

/** undefined: it is neither. */
export function parseBool(text: string): boolean | undefined {
  if (TRUE.has(text)) return true;
  return FALSE.has(text) ? false : undefined;
}

/** A number of 32 bits; undefined for anything else. */
export function parseUint(text: string, base: 8 | 10): number | undefined {
  if (!(base === 8 ? /^[0-7]{1,40}$/ : /^[0-9]{1,40}$/).test(text)) return undefined;
  const number = parseInt(text, base);
  return number <= 0xffff_ffff ? number : undefined;
}

const UNITS = new Map([
  ['', 1],
  ['b', 1],
  ['k', 2 ** 10],
  ['m', 2 ** 20],
  ['g', 2 ** 30],
  ['t', 2 ** 40],
  ['p', 2 ** 50],
]);

/** Bytes such as `512m` or `1.5GiB`; undefined for anything else. */
export function parseSize(text: string): number | undefined {
  const match = /^(\d{1,20}(?:\.\d{1,20})?) ?([a-z]{0,3})$/.exec(text.toLowerCase());
  if (match === null) return undefined;
  const [, number = '', suffix = ''] = match;
  const unit =
    suffix === 'b' || suffix === '' ? 1 : /^[kmgtp]i?b?$/.test(suffix) ? UNITS.get(suffix[0] ?? '') : undefined;
  const size = unit === undefined ? undefined : Math.trunc(Number(number) * unit);
  return size !== undefined && size <= Number.MAX_SAFE_INTEGER ? size : undefined;
}

const NANOSECONDS = new Map([
  ['ns', 1],
  ['us', 1e3],
  ['µs', 1e3],
  ['μs', 1e3],
  ['ms', 1e6],
  ['s', 1e9],
  ['m', 60e9],
  ['h', 3600e9],
]);

/** A time such as `1m30s` in nanoseconds. @throws DockerfileError without lines. */
export function parseDuration(text: string): number {
  const quoted = JSON.stringify(text);
  const sign = /^[+-]/.test(text) ? text[0] : '';
  const rest = sign ? text.slice(1) : text;
  if (rest === '0') return 0;
  if (rest === '' || text.length > 200) throw new DockerfileError(`time: invalid duration ${quoted}`);
  const part = /(\d*)(?:\.(\d*))?([^\d.]*)/y;
  let total = 0;
  while (part.lastIndex < rest.length) {
    const [, whole = '', fraction = '', unit = ''] = part.exec(rest) ?? [];
    if (whole === '' && fraction === '') throw new DockerfileError(`time: invalid duration ${quoted}`);
    if (unit === '') throw new DockerfileError(`time: missing unit in duration ${quoted}`);
    const size = NANOSECONDS.get(unit);
    if (size === undefined)
      throw new DockerfileError(`time: unknown unit ${JSON.stringify(unit)} in duration ${quoted}`);
    total += Math.trunc(Number(`${whole || '0'}.${fraction || '0'}`) * size);
  }
  if (total > 2 ** 63) throw new DockerfileError(`time: invalid duration ${quoted}`);
  return sign === '-' ? -total : total;
}
