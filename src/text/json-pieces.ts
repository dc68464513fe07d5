/** JSON of values that may have many members, as `JSON.stringify` writes it, in pieces that hold nothing else up. */
import { memberNames } from './member-names.js';
import { ownMember } from './own-member.js';
import { turn } from './turns.js';

/** A value with so many members or fewer, those of its members included, is written at once. */
const FEW = 1000;
const PIECE_CHARS = 16 * 1024;

type Members = Readonly<Record<string, unknown>>;

/** Tells whether a value has many members, those of its members included. */
export function isLong(value: unknown): boolean {
  return membersIn(value, FEW) > FEW;
}

/** Counts the members; stops when there are more than `enough`. */
function membersIn(value: unknown, enough: number): number {
  if (typeof value !== 'object' || value === null) return 0;
  const names = Array.isArray(value) ? undefined : memberNames(value);
  let count = names?.length ?? (value as readonly unknown[]).length;
  if (count > enough) return count;
  for (const member of Object.values(value) as unknown[]) {
    if (count > enough) break;
    count += membersIn(member, enough - count);
  }
  return count;
}

/** @param value is plain: none of its members says itself how it is written. It must not change meanwhile. */
export function* jsonPieces(value: unknown): Generator<string> {
  const begun = { text: '' };
  if (isLong(value)) yield* write(value as object, begun);
  else begun.text = JSON.stringify(value) ?? 'null';
  yield begun.text;
}

function* write(value: object, begun: { text: string }): Generator<string> {
  const isList = Array.isArray(value);
  const names = isList ? value.keys() : memberNames(value);
  let separator = isList ? '[' : '{';
  for (const name of names) {
    const member: unknown =
      typeof name === 'number' ? (value as readonly unknown[])[name] : ownMember(value as Members, name);
    if (member === undefined && !isList) continue;
    begun.text += isList ? separator : `${separator}${JSON.stringify(name)}:`;
    // Most members are short, and a generator for each of thousands would take longer than their texts.
    if (isLong(member)) yield* write(member as object, begun);
    else begun.text += JSON.stringify(member) ?? 'null';
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
