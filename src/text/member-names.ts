/**
 * The names of the members of objects that nobody changes any more. V8 takes a good part of a microsecond for each name
 * of a long object, and a client's table of ports is gone through by a dozen checks and writers: so those of long
 * objects are kept.
 */

/** Objects with so many members are long. */
const MANY = 1000;

const kept = new WeakMap<object, readonly string[]>();

/** Returns what `Object.keys` does. */
export function memberNames(object: object): readonly string[] {
  const known = kept.get(object);
  if (known !== undefined) return known;
  const names = Object.keys(object);
  if (names.length > MANY) kept.set(object, names);
  return names;
}

export function hasMembers<T extends object>(object: T | null | undefined): object is T {
  return object !== null && object !== undefined && memberNames(object).length > 0;
}
