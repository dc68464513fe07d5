/** The types of configuration values: how a flag, the file and the JSON Schema spell each. */
import { isIP } from 'node:net';
import { invalid } from '../errors/engine-error.js';

export interface ValueType<T> {
  /** Placeholder in `--help`; '' for flags that need no value. */
  readonly label: string;
  /** The flag may be given several times and collects its values. */
  readonly repeatable: boolean;
  /** JSON Schema of the file's value. */
  readonly schema: Readonly<Record<string, unknown>>;
  /** Reads one occurrence of the flag; `before` is the value of earlier ones. Throws invalid with the reason alone. */
  readonly fromFlag: (text: string, before: T | undefined) => T;
  /** Reads the value in the file. Throws invalid with the reason alone. */
  readonly fromFile: (value: unknown) => T;
}

const fault = (reason: string): never => {
  throw invalid(reason);
};

export const boolean: ValueType<boolean> = {
  label: '',
  repeatable: false,
  schema: { type: 'boolean' },
  // The words of Go's strconv.ParseBool, which operators are used to.
  fromFlag: (text) => {
    if (['1', 't', 'T', 'TRUE', 'true', 'True'].includes(text)) return true;
    if (['0', 'f', 'F', 'FALSE', 'false', 'False'].includes(text)) return false;
    return fault('must be true or false');
  },
  fromFile: (value) => (typeof value === 'boolean' ? value : fault('must be true or false')),
};

/** Makes the type of a single value that is a string in the file. `check` throws invalid; it may normalise. */
export function text(
  label = 'string',
  check: (value: string) => string = (value) => value,
  schema: Readonly<Record<string, unknown>> = {},
): ValueType<string> {
  return {
    label,
    repeatable: false,
    schema: { type: 'string', ...schema },
    fromFlag: check,
    fromFile: (value) => (typeof value === 'string' ? check(value) : fault('must be a string')),
  };
}

/** Makes the type of a value that is one of a few words. */
export function oneOf<const Word extends string>(
  words: readonly Word[],
  message?: (value: string) => string,
): ValueType<Word> {
  const check = (value: string): Word => {
    const found = words.find((word) => word === value);
    return (
      found ??
      fault(message ? message(value) : `must be one of ${words.map((word) => JSON.stringify(word)).join(', ')}`)
    );
  };
  return {
    label: 'string',
    repeatable: false,
    schema: { enum: words },
    fromFlag: check,
    fromFile: (value) => (typeof value === 'string' ? check(value) : fault('must be a string')),
  };
}

export function integer(
  options: { readonly min?: number; readonly max?: number; readonly message?: (value: number) => string } = {},
): ValueType<number> {
  const { min = Number.MIN_SAFE_INTEGER, max = Number.MAX_SAFE_INTEGER } = options;
  const { message = () => (options.max === undefined ? `must be at least ${min}` : `must be from ${min} to ${max}`) } =
    options;
  const check = (value: number): number =>
    value >= min && value <= max && Number.isSafeInteger(value) ? value : fault(message(value));
  return {
    label: 'int',
    repeatable: false,
    schema: {
      type: 'integer',
      ...(options.min === undefined ? {} : { minimum: options.min }),
      ...(options.max === undefined ? {} : { maximum: options.max }),
    },
    fromFlag: (flag) => (/^[+-]?\d+$/.test(flag) ? check(Number(flag)) : fault('must be an integer')),
    fromFile: (value) =>
      typeof value === 'number' && Number.isInteger(value) ? check(value) : fault('must be an integer'),
  };
}

const DURATION = /^(?:\d+(?:\.\d+)?(?:h|m|s|ms))+$/;
const SECONDS: Readonly<Record<string, number>> = { h: 3600, m: 60, s: 1, ms: 0.001 };

/** Seconds; a number, or text with units such as `1m30s`. */
export const seconds: ValueType<number> = {
  label: 'int',
  repeatable: false,
  schema: { anyOf: [{ type: 'integer' }, { type: 'string', pattern: DURATION.source }] },
  fromFlag: (flag) => (/^[+-]?\d+$/.test(flag) ? Number(flag) : parseDuration(flag)),
  fromFile: (value) => {
    if (typeof value === 'number' && Number.isInteger(value)) return value;
    return typeof value === 'string' ? parseDuration(value) : fault('must be a number of seconds');
  },
};

function parseDuration(duration: string): number {
  if (!DURATION.test(duration)) return fault('must be a number of seconds or a duration such as 90s or 1m30s');
  let total = 0;
  for (const [, amount, unit = ''] of duration.matchAll(/([\d.]+)(h|ms|m|s)/gy))
    total += Number(amount) * (SECONDS[unit] ?? 0);
  return Math.ceil(total);
}

const BYTES = /^(\d+(?:\.\d+)?) ?([kmgtp]?)(?:i?b)?$/i;

/** Reads a size in powers of 1024: `64m`, `64MB` and `64MiB` are the same. @throws EngineError invalid. */
export function parseBytes(size: string): number {
  const match = BYTES.exec(size);
  if (!match) return fault(`invalid size: '${size}'`);
  const power = 'kmgtp'.indexOf((match[2] ?? '').toLowerCase() || ' ') + 1;
  return Math.floor(Number(match[1]) * 1024 ** power);
}

export const bytes: ValueType<number> = {
  label: 'bytes',
  repeatable: false,
  schema: {
    anyOf: [
      { type: 'integer', minimum: 0 },
      { type: 'string', pattern: BYTES.source.replace('[kmgtp]', '[kmgtpKMGTP]').replace('i?b', '[iI]?[bB]') },
    ],
  },
  fromFlag: parseBytes,
  fromFile: (value) => {
    if (typeof value === 'number' && Number.isInteger(value) && value >= 0) return value;
    return typeof value === 'string' ? parseBytes(value) : fault('must be a size such as "64M"');
  },
};

/** Makes the type of several strings; the flag adds one each time. */
export function list(label = 'list', check: (item: string) => string = (item) => item): ValueType<readonly string[]> {
  return {
    label,
    repeatable: true,
    schema: { type: 'array', items: { type: 'string' } },
    fromFlag: (item, before = []) => [...before, check(item)],
    fromFile: (value) => {
      if (!Array.isArray(value) || !value.every((item) => typeof item === 'string'))
        return fault('must be an array of strings');
      return value.map(check);
    },
  };
}

/** Strings by name: `k=v` on the command line, an object in the file. */
export const map: ValueType<Readonly<Record<string, string>>> = {
  label: 'map',
  repeatable: true,
  schema: { type: 'object', additionalProperties: { type: 'string' } },
  fromFlag: (flag, before = {}) => {
    const [name, value] = splitPair(flag);
    return { ...before, [name]: value };
  },
  fromFile: (value) =>
    mapObject(value, (item, name) => (typeof item === 'string' ? item : fault(`${name} must be a string`))),
};

/** Switches by name: `name[=true|false]`. */
export const switches: ValueType<Readonly<Record<string, boolean>>> = {
  label: 'map',
  repeatable: true,
  schema: { type: 'object', additionalProperties: { type: 'boolean' } },
  fromFlag: (flag, before = {}) => {
    const [name, value] = flag.includes('=') ? splitPair(flag) : [flag, 'true'];
    return { ...before, [name]: boolean.fromFlag(value, undefined) };
  },
  fromFile: (value) =>
    mapObject(value, (item, name) => (typeof item === 'boolean' ? item : fault(`${name} must be true or false`))),
};

/** Splits `name=value` at the first `=`. @throws EngineError invalid without one. */
export function splitPair(pair: string): [name: string, value: string] {
  const at = pair.indexOf('=');
  return at < 1
    ? fault(`must have the form <name>=<value>, not ${JSON.stringify(pair)}`)
    : [pair.slice(0, at), pair.slice(at + 1)];
}

/** Converts each member of a JSON object to its type. @throws EngineError invalid when it is no object. */
export function mapObject<T>(value: unknown, member: (item: unknown, name: string) => T): Record<string, T> {
  if (!isObject(value)) return fault('must be an object');
  return Object.fromEntries(Object.entries(value).map(([name, item]) => [name, member(item, name)]));
}

export function isObject(value: unknown): value is Readonly<Record<string, unknown>> {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}

/** Checks an IP address. @throws EngineError invalid. */
export function checkIp(value: string, family: 4 | 6 | 'any' = 'any'): string {
  const found = isIP(value);
  if (found === 0) return fault(`${value} is not an ip address`);
  return family === 'any' || found === family ? value : fault(`${value} is not an IPv${family} address`);
}

/** Checks an address with a prefix length. @throws EngineError invalid. */
export function checkCidr(value: string, family: 4 | 6): string {
  const [address = '', prefix = '', ...rest] = value.split('/');
  const good =
    rest.length === 0 &&
    isIP(address) === family &&
    /^\d{1,3}$/.test(prefix) &&
    Number(prefix) <= (family === 4 ? 32 : 128);
  return good ? value : fault(`invalid CIDR address: ${value}`);
}

/** Returns true for an array of nothing but strings. */
export function isStrings(value: unknown): value is readonly string[] {
  return Array.isArray(value) && value.every((item) => typeof item === 'string');
}

/** Refuses members that no reader took. @throws EngineError invalid. */
export function rejectRest(rest: Readonly<Record<string, unknown>>, where: string): void {
  const names = Object.keys(rest);
  if (names.length > 0)
    throw invalid(`${where}: unknown member ${names.map((name) => JSON.stringify(name)).join(', ')}`);
}
