/**
 * JSON of values that may have many members or long texts, as `JSON.stringify` writes it, in pieces that hold nothing
 * else up.
 */
import { memberNames } from './member-names.js';
import { ownMember } from './own-member.js';
import { turn } from './turns.js';

/** A value with so many members or fewer, those of its members included, is written at once. */
const FEW = 1000;
/** So many characters of a text count as a member. */
const TEXT_CHARS = 64;
const PIECE_CHARS = 16 * 1024;
/** Pieces for a file are so long, as each of them costs a turn of the thread pool. */
const WRITTEN_CHARS = 256 * 1024;

type Members = Readonly<Record<string, unknown>>;

/** Tells whether a value has many members, those of its members included, or long texts. */
export function isLong(value: unknown): boolean {
  return membersIn(value, FEW) > FEW;
}

/** Counts the members, and texts by their length; stops when there are more than `enough`. */
function membersIn(value: unknown, enough: number): number {
  if (typeof value === 'string') return Math.floor(value.length / TEXT_CHARS);
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
  if (isLong(value)) yield* write(value as object | string, begun);
  else begun.text = JSON.stringify(value) ?? 'null';
  yield begun.text;
}

function* write(value: object | string, begun: { text: string }): Generator<string> {
  if (typeof value === 'string') {
    yield* writeText(value, begun);
    return;
  }
  const isList = Array.isArray(value);
  const names = isList ? value.keys() : memberNames(value);
  let separator = isList ? '[' : '{';
  for (const name of names) {
    const member: unknown =
      typeof name === 'number' ? (value as readonly unknown[])[name] : ownMember(value as Members, name);
    if (member === undefined && !isList) continue;
    begun.text += isList ? separator : `${separator}${JSON.stringify(name)}:`;
    // Most members are short, and a generator for each of thousands would take longer than their texts.
    if (isLong(member)) yield* write(member as object | string, begun);
    else begun.text += JSON.stringify(member) ?? 'null';
    separator = ',';
    if (begun.text.length < PIECE_CHARS) continue;
    yield begun.text;
    begun.text = '';
  }
  begun.text += isList ? ']' : separator === '{' ? '{}' : '}';
}

function* writeText(text: string, begun: { text: string }): Generator<string> {
  begun.text += '"';
  for (let at = 0, end: number; at < text.length; at = end) {
    end = at + PIECE_CHARS;
    // Half of a pair would be written as an escape.
    if (isFirstOfPair(text.charCodeAt(end - 1))) end--;
    begun.text += JSON.stringify(text.slice(at, end)).slice(1, -1);
    yield begun.text;
    begun.text = '';
  }
  begun.text += '"';
}

const isFirstOfPair = (code: number): boolean => code >= 0xd800 && code <= 0xdbff;

/** Yields the text of a value, which must not change meanwhile, in pieces for a file. */
export async function* jsonInTurns(value: unknown): AsyncGenerator<string> {
  let begun = '';
  for (const piece of jsonPieces(value)) {
    begun += piece;
    await turn();
    if (begun.length < WRITTEN_CHARS) continue;
    yield begun;
    begun = '';
  }
  yield begun;
}
