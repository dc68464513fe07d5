/** Objects with many members, filled in parts so that they hold nothing else up. */
import type { Parts } from './turns.js';

/** So many members are added together. */
const MEMBERS = 1000;

/** Returns an object with these members in their order. Their names may be any texts. */
export function* objectParts<T>(names: Iterable<string>, valueOf: (name: string) => T): Parts<Record<string, T>> {
  const filled: Record<string, T> = {};
  let count = 0;
  for (const name of names) {
    // An assignment to this one would change what the object is.
    if (name === '__proto__')
      Object.defineProperty(filled, name, {
        value: valueOf(name),
        enumerable: true,
        writable: true,
        configurable: true,
      });
    else filled[name] = valueOf(name);
    if (++count % MEMBERS === 0) yield;
  }
  return filled;
}
