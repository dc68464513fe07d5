/**
 * Shell patterns of clients with the meaning of Go's path.Match: `*` and `?` stop at slashes, `[a-z]`, `[^a-z]` and
 * `\x` are as in a shell. Only the last `*` is ever tried again, so that no pattern takes longer than its length times
 * that of the name.
 */
import { invalid } from '../errors/engine-error.js';
import type { WorkBudget } from './work-budget.js';

const MAX_GLOB_LENGTH = 1000;

/** A piece matches one character; `null` is the `*`. */
type Piece = ((char: string) => boolean) | null;

export type Glob = (name: string) => boolean;

/**
 * Throws invalid `syntax error in pattern`; and invalid when the budget is used up, also from the returned function.
 */
export function compileGlob(text: string, budget: WorkBudget): Glob {
  if (text.length > MAX_GLOB_LENGTH)
    throw invalid(`pattern is longer than ${MAX_GLOB_LENGTH} characters`, { code: 'INVALID_PATTERN' });
  const pieces = parseGlob(Array.from(text));
  // Most names differ from most patterns in what is in front of the first special character.
  const literal = /^[^*?[\\]*/.exec(text)?.[0] ?? '';
  return (name) => {
    budget.spend(1);
    if (!name.startsWith(literal)) return false;
    budget.spend(pieces.length * (name.length - literal.length + 1));
    return matchPieces(pieces, Array.from(name));
  };
}

function matchPieces(pieces: readonly Piece[], name: readonly string[]): boolean {
  let piece = 0;
  let at = 0;
  /** These are the position of the last `*`, and where its match ends in the name. */
  let star = -1;
  let starEnd = 0;
  while (at < name.length || piece < pieces.length) {
    const wanted = pieces[piece];
    const char = name[at];
    if (wanted === null) {
      star = piece++;
      starEnd = at;
    } else if (wanted !== undefined && char !== undefined && wanted(char)) {
      piece++;
      at++;
    } else {
      if (star < 0 || starEnd >= name.length || name[starEnd] === '/') return false;
      starEnd++;
      piece = star + 1;
      at = starEnd;
    }
  }
  return true;
}

function parseGlob(chars: readonly string[]): Piece[] {
  const pieces: Piece[] = [];
  for (let at = 0; at < chars.length; at++) {
    const char = chars[at];
    if (char === '*') pieces.push(null);
    else if (char === '?') pieces.push((other) => other !== '/');
    else if (char === '[') {
      const set = parseSet(chars, at + 1);
      pieces.push(set.matches);
      at = set.end;
    } else {
      const literal = char === '\\' ? chars[++at] : char;
      if (literal === undefined) throw malformed();
      pieces.push((other) => other === literal);
    }
  }
  return pieces;
}

/** Parses behind a `[`; `end` is where its `]` is. */
function parseSet(
  chars: readonly string[],
  start: number,
): { readonly matches: (char: string) => boolean; readonly end: number } {
  const isNegated = chars[start] === '^';
  const ranges: (readonly [low: string, high: string])[] = [];
  let at = isNegated ? start + 1 : start;
  const next = (): string => {
    let char = chars[at++];
    if (char === '-' || char === ']') throw malformed();
    if (char === '\\') char = chars[at++];
    if (char === undefined) throw malformed();
    return char;
  };
  while (ranges.length === 0 || chars[at] !== ']') {
    const low = next();
    let high = low;
    if (chars[at] === '-') {
      at++;
      high = next();
    }
    ranges.push([low, high]);
  }
  const isInside = (char: string): boolean =>
    ranges.some(([low, high]) => order(low) <= order(char) && order(char) <= order(high));
  return { matches: (char) => isInside(char) !== isNegated, end: at };
}

function order(char: string): number {
  return char.codePointAt(0) ?? 0;
}

function malformed(): Error {
  return invalid('syntax error in pattern', { code: 'INVALID_PATTERN' });
}
