/**
 * Decoders for JSON request bodies: they check types, match field names case-insensitively and ignore unknown fields,
 * as clients of the Engine API are used to; `null` and absence give the default. Errors name the field.
 */
import { invalid } from '../../errors/engine-error.js';
import { MAX_INTEGER } from '../../ports/container.js';
import { memberNames } from '../../text/member-names.js';
import { objectParts } from '../../text/object-parts.js';
import { ownMember } from '../../text/own-member.js';
import { whole } from '../../text/turns.js';

export interface Decoder<T> {
  /** Decodes a value that is present. */
  readonly decode: (value: unknown, path: string) => T;
  /** The value of an absent or null field; undefined leaves the field out. */
  readonly absent: () => T | undefined;
}

function fail(path: string, wanted: string, value: unknown): never {
  const got = Array.isArray(value) ? 'array' : typeof value === 'number' ? String(value) : typeof value;
  throw invalid(`invalid JSON: field ${path || 'body'} must be ${wanted}, not ${got}`, { code: 'INVALID_FIELD' });
}

function decoder<T>(decode: Decoder<T>['decode'], absent: () => T | undefined): Decoder<T> {
  return { decode, absent };
}

/** Decodes text without NUL characters: the kernel would see only what is before one. */
export const string = (fallback = ''): Decoder<string> =>
  decoder(
    (value, path) => {
      if (typeof value !== 'string') return fail(path, 'a string', value);
      if (value.includes('\0'))
        throw invalid(`invalid JSON: field ${path} contains a NUL character`, { code: 'INVALID_FIELD' });
      return value;
    },
    () => fallback,
  );

export const boolean = (fallback = false): Decoder<boolean> =>
  decoder(
    (value, path) => (typeof value === 'boolean' ? value : fail(path, 'a boolean', value)),
    () => fallback,
  );

/**
 * Decodes a whole number of 64 bits. Beyond 2^53 (sizes that clients send as "unlimited") the nearest double is good
 * enough.
 */
export const integer = (fallback = 0): Decoder<number> =>
  decoder(
    (value, path) =>
      isWhole(value) && Math.abs(value) <= 2 ** 63
        ? Math.min(value, MAX_INTEGER)
        : fail(path, 'a 64-bit integer', value),
    () => fallback,
  );

/** Decodes a whole number without a sign. */
export const unsigned = (bits: 16 | 32 | 64): Decoder<number> =>
  decoder(
    (value, path) =>
      isWhole(value) && value >= 0 && value < 2 ** bits ? value : fail(path, `an unsigned ${bits}-bit integer`, value),
    () => 0,
  );

export const anything = (): Decoder<unknown> =>
  decoder(
    (value) => value,
    () => undefined,
  );

/** Returns a decoder for a field that stays out when it is absent. */
export function optional<T>(inner: Decoder<T>): Decoder<T | undefined> {
  return decoder<T | undefined>(inner.decode, () => undefined);
}

/** Returns a decoder for a field that stays out when it is absent, false, 0 or '', which mean the same here. */
export function unlessZero<T extends boolean | number | string>(inner: Decoder<T>): Decoder<T | undefined> {
  return decoder<T | undefined>(
    (value, path) => inner.decode(value, path) || undefined,
    () => undefined,
  );
}

/** Returns a decoder whose absent value is null. */
export function nullable<T>(inner: Decoder<T>): Decoder<T | null> {
  return decoder<T | null>(inner.decode, () => null);
}

export function list<T>(item: Decoder<T>): Decoder<T[]> {
  return decoder(
    (value, path) => {
      if (!Array.isArray(value)) return fail(path, 'an array', value);
      return value.map((element: unknown, index) => required(item, element, `${path}[${index}]`));
    },
    () => [],
  );
}

/** Decodes an object with free keys. */
export function dictionary<T>(item: Decoder<T>): Decoder<Record<string, T>> {
  return decoder(
    (value, path) => {
      if (!isObject(value)) return fail(path, 'an object', value);
      return whole(
        objectParts(memberNames(value), (name) => required(item, ownMember(value, name), `${path}.${name}`)),
      );
    },
    () => ({}),
  );
}

/** Decodes `{}` values, as port and volume sets have them. */
export const emptyObject = (): Decoder<Record<string, never>> =>
  decoder(
    (value, path) => (isObject(value) ? {} : fail(path, 'an object', value)),
    () => ({}),
  );

/** Checks the type of a field that answers have and requests may repeat; its value means nothing. */
export const ignored = (inner: Decoder<unknown>): Decoder<undefined> =>
  decoder(
    (value, path) => void inner.decode(value, path),
    () => undefined,
  );

/** Decodes Cmd and Entrypoint: an array of strings, or one string. */
export const words = (): Decoder<string[]> =>
  decoder(
    (value, path) => (typeof value === 'string' ? [value] : list(string()).decode(value, path)),
    () => [],
  );

type Shape = Readonly<Record<string, Decoder<unknown>>>;
type Fields<S extends Shape> = { [K in keyof S]: S[K] extends Decoder<infer T> ? T : never };

/** Decodes an object with known fields; a field whose decoder has no absent value is left out. */
export function object<S extends Shape>(shape: S): Decoder<Fields<S>> {
  const fields = Object.entries(shape);
  const byLowerCase = new Map(Object.keys(shape).map((name) => [folded(name), name]));
  /** Returns the values by the names of the shape. There may be thousands of objects, most of them with these names. */
  const named = (given: Readonly<Record<string, unknown>>, path: string): Readonly<Record<string, unknown>> => {
    if (memberNames(given).every((name) => Object.hasOwn(shape, name))) return given;
    const values = new Map<string, unknown>();
    for (const [key, value] of Object.entries(given)) {
      const name = Object.hasOwn(shape, key) ? key : byLowerCase.get(folded(key));
      if (name === undefined) continue;
      // Which of them counts is another one for each reader, also for those who authorize requests.
      if (values.has(name))
        throw invalid(`invalid JSON: field ${fieldPath(path, name)} is given in two spellings`, {
          code: 'INVALID_FIELD',
        });
      values.set(name, value);
    }
    return Object.fromEntries(values);
  };
  const fill = (given: Readonly<Record<string, unknown>>, path: string): Fields<S> => {
    const values = named(given, path);
    const result: Record<string, unknown> = {};
    for (const [name, field] of fields) {
      const value = ownMember(values, name) ?? null;
      const decoded = value === null ? field.absent() : field.decode(value, fieldPath(path, name));
      if (decoded !== undefined) result[name] = decoded;
    }
    return result as Fields<S>;
  };
  return decoder(
    (value, path) => (isObject(value) ? fill(value, path) : fail(path, 'an object', value)),
    () => fill({}, ''),
  );
}

/** Returns what is equal for names that count as one: besides capitals, Go takes the long s for an s. */
export function folded(name: string): string {
  return name.replaceAll('\u017f', 's').toLowerCase();
}

function fieldPath(path: string, name: string): string {
  return path === '' ? name : `${path}.${name}`;
}

function required<T>(item: Decoder<T>, value: unknown, path: string): T {
  if (value !== null && value !== undefined) return item.decode(value, path);
  const absent = item.absent();
  return absent === undefined ? fail(path, 'present', value) : absent;
}

function isWhole(value: unknown): value is number {
  return typeof value === 'number' && Number.isInteger(value);
}

function isObject(value: unknown): value is Record<string, unknown> {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}
