/** Reads values of log options as Go's libraries do, with their error texts. */
import { invalid } from '../../errors/engine-error.js';
import { ownMember } from '../../text/own-member.js';

export type LogOptions = Readonly<Record<string, string>>;

/** `1`, `t`, `TRUE` and so on. */
const BOOLEANS: ReadonlyMap<string, boolean> = new Map([
  ...['1', 't', 'T', 'true', 'TRUE', 'True'].map((text) => [text, true] as const),
  ...['0', 'f', 'F', 'false', 'FALSE', 'False'].map((text) => [text, false] as const),
]);
const UNIT_MS: Readonly<Record<string, number>> = {
  ns: 1e-6,
  us: 1e-3,
  µs: 1e-3,
  ms: 1,
  s: 1000,
  m: 60_000,
  h: 3_600_000,
};

/** Makes the error for a bad log option. */
export function badOption(message: string, cause?: unknown): Error {
  return invalid(message, { code: 'LOG_OPTION', ...(cause === undefined ? {} : { cause }) });
}

export function isBoolean(text: string): boolean {
  return BOOLEANS.has(text);
}

/** Parses a boolean. Throws invalid. @param context begins the text of the error. */
export function parseBoolean(text: string, context = ''): boolean {
  const value = BOOLEANS.get(text);
  if (value === undefined)
    throw badOption(`${context}strconv.ParseBool: parsing ${JSON.stringify(text)}: invalid syntax`);
  return value;
}

/** Parses an integer. Throws invalid. @param context begins the text of the error. */
export function parseInteger(text: string, context = '', name = 'Atoi'): number {
  const isWellFormed = name === 'ParseUint' ? /^\d+$/.test(text) : /^[+-]?\d+$/.test(text);
  if (!isWellFormed) throw badOption(`${context}strconv.${name}: parsing ${JSON.stringify(text)}: invalid syntax`);
  const value = Number(text);
  if (!Number.isSafeInteger(value))
    throw badOption(`${context}strconv.${name}: parsing ${JSON.stringify(text)}: value out of range`);
  return value;
}

/** Returns the bytes of `10m`, `1.5 GB`, `64KiB`; the prefix of the unit means powers of `base`. */
export function parseSize(text: string, base: 1000 | 1024, context = ''): number {
  const match = /^(.*[\d. ])([^\d. ]*)$/s.exec(text);
  if (!match) throw badOption(`${context}invalid size: '${text}'`);
  const [, numberText = '', suffix = ''] = match;
  const digits = numberText.replace(/ $/, '');
  if (!/^[+-]?(\d+(?:\.\d*)?|\.\d+)$/.test(digits))
    throw badOption(`${context}strconv.ParseFloat: parsing ${JSON.stringify(digits)}: invalid syntax`);
  const value = Number(digits);
  if (value < 0) throw badOption(`${context}invalid size: '${text}'`);
  const unit = /^(?:b|([kmgtp])(?:b|ib)?)?$/.exec(suffix.toLowerCase());
  if (!unit) throw badOption(`${context}invalid suffix: '${suffix.toLowerCase()}'`);
  return Math.trunc(value * base ** ('kmgtp'.indexOf(unit[1] ?? '?') + 1));
}

/** Returns the milliseconds of `1.5s`, `2m30s`, `100ms`. */
export function parseDurationMs(text: string): number {
  const quoted = JSON.stringify(text);
  if (/^[+-]?0$/.test(text)) return 0;
  const [, sign = '', rest = ''] = /^([+-]?)(.*)$/s.exec(text) ?? [];
  if (rest === '') throw badOption(`time: invalid duration ${quoted}`);
  let total = 0;
  for (let at = 0; at < rest.length;) {
    const [whole = '', number = '', unit = ''] = /^(\d+(?:\.\d*)?|\.\d+)([^\d.]*)/.exec(rest.slice(at)) ?? [];
    if (whole === '') throw badOption(`time: invalid duration ${quoted}`);
    if (unit === '') throw badOption(`time: missing unit in duration ${quoted}`);
    const unitMs = ownMember(UNIT_MS, unit);
    if (unitMs === undefined) throw badOption(`time: unknown unit ${JSON.stringify(unit)} in duration ${quoted}`);
    total += Number(number) * unitMs;
    at += whole.length;
  }
  return sign === '-' ? -total : total;
}
