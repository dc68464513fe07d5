/** JSON of values that may have many members, as `JSON.stringify` writes it, in pieces that hold nothing else up. */
import { ownMember } from './own-member.js';
import { turn } from './turns.js';

/** A value with so many members or fewer, those of its members included, is written at once. */
const FEW = 1000;
const PIECE_CHARS = 16 * 1024;

/** Tells whether a value has many members, those of its members included. */
export function isLong(value: unknown): boolean {
  return membersIn(value, FEW) > FEW;
}

/** Counts the members; stops when there are more than `enough`. */
function membersIn(value: unknown, enough: number): number {
  if (typeof value !== 'object' || value === null) return 0;
  const members: unknown[] = Array.isArray(value) ? value : Object.values(value);
  let count = members.length;
  for (const member of members) {
    if (count > enough) break;
    count += membersIn(member, enough - count);
  }
  return count;
}

/** @param value is plain: none of its members says itself how it is written. It must not change meanwhile. */
export function* jsonPieces(value: unknown): Generator<string> {
  const begun = { text: '' };
  yield* write(value, begun);
  yield begun.text;
}

function* write(value: unknown, begun: { text: string }): Generator<string> {
  if (typeof value !== 'object' || value === null || !isLong(value)) {
    begun.text += JSON.stringify(value) ?? 'null';
    return;
  }
  const isList = Array.isArray(value);
  let separator = isList ? '[' : '{';
  for (const name of Object.keys(value)) {
    const member: unknown = isList ? value[Number(name)] : ownMember(value as Readonly<Record<string, unknown>>, name);
    if (member === undefined && !isList) continue;
    begun.text += isList ? separator : `${separator}${JSON.stringify(name)}:`;
    yield* write(member, begun);
    separator = ',';
    if (begun.text.length < PIECE_CHARS) continue;
    yield begun.text;
    begun.text = '';
  }
  begun.text += isList ? ']' : separator === '{' ? '{}' : '}';
}

/** Returns the text of a value, which must not change meanwhile. */
export async function jsonInTurns(value: unknown): Promise<string> {
  const pieces: string[] = [];
  for (const piece of jsonPieces(value)) {
    pieces.push(piece);
    await turn();
  }
  return pieces.join('');
}
