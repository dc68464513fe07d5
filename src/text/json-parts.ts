/** JSON of large documents, made in parts so that it holds nothing else up. */
import { goJson } from './go-json.js';
import { ownMember } from './own-member.js';
import type { Parts } from './turns.js';

/** So many members are written together. */
const MEMBERS = 500;
/** The members of members of members are small. */
const DEPTH = 3;

/**
 * Returns the document in one line as Go's encoder writes it.
 * @param value is plain: none of its members says itself how it is written.
 */
export function* goJsonParts(value: unknown, depth = DEPTH): Parts<string> {
  if (depth === 0 || typeof value !== 'object' || value === null) return goJson(value, 0);
  const pieces: string[] = [];
  if (Array.isArray(value)) {
    for (const member of value) {
      pieces.push(yield* goJsonParts(member, depth - 1));
      if (pieces.length % MEMBERS === 0) yield;
    }
    return `[${pieces.join(',')}]`;
  }
  const names = Object.keys(value);
  const members = value as Readonly<Record<string, unknown>>;
  if (depth > 1) {
    for (const name of names) {
      const member = ownMember(members, name);
      if (member !== undefined) pieces.push(`${goJson(name, 0)}:${yield* goJsonParts(member, depth - 1)}`);
    }
    return `{${pieces.join(',')}}`;
  }
  for (let at = 0; at < names.length; at += MEMBERS) {
    const some = names.slice(at, at + MEMBERS).map((name) => [name, ownMember(members, name)] as const);
    pieces.push(goJson(Object.fromEntries(some), 0).slice(1, -1));
    yield;
  }
  return `{${pieces.filter((piece) => piece !== '').join(',')}}`;
}
