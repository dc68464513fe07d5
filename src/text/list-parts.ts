/** Long lists, gone through in parts so that nothing else is held up. */
import type { Parts } from './turns.js';

/** So many members are taken together. */
const MEMBERS = 200;

/** Returns what `map` makes of each member, as the method of lists does. */
export function* mapParts<T, U>(list: Iterable<T>, map: (member: T) => U): Parts<U[]> {
  const mapped: U[] = [];
  for (const member of list) {
    mapped.push(map(member));
    if (mapped.length % MEMBERS === 0) yield;
  }
  return mapped;
}
