/**
 * The patterns of `${x#p}` and `${x/p/r}`: `*` and `?`, without brackets; neither matches the end of a line. One pass
 * from the end to the beginning finds the match for every position, so that the cost is the length of the pattern times
 * that of the value, and the budget limits it.
 */
import type { WorkBudget } from '../../text/work-budget.js';
import { DockerfileError } from './dockerfile-error.js';

type Piece = { readonly literal: string } | 'one' | 'any';

/** The result of one word has at most so many characters. */
export const MAX_WORD = 1 << 20;

interface ShellPattern {
  /** Returns for each position where the match that begins there ends, or -1. */
  ends(value: readonly string[]): Int32Array;
}

/** @param isGreedy whether `*` takes as much as it can, else as little. @throws DockerfileError about an escape. */
function compileShellPattern(text: string, isGreedy: boolean, budget: WorkBudget): ShellPattern {
  return fromPieces(piecesOf(text), isGreedy, budget);
}

/** The same pattern read backwards, for values that are read backwards. */
function compileReversed(text: string, isGreedy: boolean, budget: WorkBudget): ShellPattern {
  return fromPieces(piecesOf(text).reverse(), isGreedy, budget);
}

function fromPieces(pieces: readonly Piece[], isGreedy: boolean, budget: WorkBudget): ShellPattern {
  return {
    ends(value) {
      budget.spend((pieces.length + 1) * (value.length + 1));
      let next: Int32Array = Int32Array.from({ length: value.length + 1 }, (_, at) => at);
      for (const piece of pieces.toReversed()) next = endsOfPiece(piece, value, next, isGreedy);
      return next;
    },
  };
}

/** @param after says where the rest of the pattern ends. */
function endsOfPiece(piece: Piece, value: readonly string[], after: Int32Array, isGreedy: boolean): Int32Array {
  const ends = new Int32Array(value.length + 1);
  for (let at = value.length; at >= 0; at--) {
    const char = value[at];
    const rest = after[at] ?? -1;
    if (piece === 'any') {
      const longer = char === undefined || char === '\n' ? -1 : (ends[at + 1] ?? -1);
      const [first, second] = isGreedy ? [longer, rest] : [rest, longer];
      ends[at] = first >= 0 ? first : second;
    } else {
      const isHere = char !== undefined && (piece === 'one' ? char !== '\n' : char === piece.literal);
      ends[at] = isHere ? (after[at + 1] ?? -1) : -1;
    }
  }
  return ends;
}

function piecesOf(text: string): Piece[] {
  const chars = Array.from(text);
  const pieces: Piece[] = [];
  for (let at = 0; at < chars.length; at++) {
    const char = chars[at] ?? '';
    if (char === '*') pieces.push('any');
    else if (char === '?') pieces.push('one');
    else if (char === '\\') {
      const next = chars[++at];
      if (next === undefined || !'*?\\}/'.includes(next)) {
        throw new DockerfileError(`invalid pattern (${text}) in substitution: invalid escape '\\${next ?? '\uFFFD'}'`);
      }
      pieces.push({ literal: next });
    } else pieces.push({ literal: char });
  }
  return pieces;
}

/** `${name#pattern}`. @throws DockerfileError about the pattern. */
export function trimStart(pattern: string, value: string, isGreedy: boolean, budget: WorkBudget): string {
  const chars = Array.from(value);
  const end = compileShellPattern(pattern, isGreedy, budget).ends(chars)[0] ?? -1;
  return end < 0 ? value : chars.slice(end).join('');
}

/** `${name%pattern}`. @throws DockerfileError about the pattern. */
export function trimEnd(pattern: string, value: string, isGreedy: boolean, budget: WorkBudget): string {
  const chars = Array.from(value).reverse();
  const end = compileReversed(pattern, isGreedy, budget).ends(chars)[0] ?? -1;
  return end < 0 ? value : chars.slice(end).reverse().join('');
}

interface Replacing {
  readonly isAll: boolean;
  readonly budget: WorkBudget;
}

/**
 * `${name/pattern/replacement}`. An empty match right behind another match does not count, as in Go.
 * @throws DockerfileError about the pattern, and when the result is too long.
 */
export function replaceIn(value: string, pattern: string, replacement: string, { isAll, budget }: Replacing): string {
  const chars = Array.from(value);
  const ends = compileShellPattern(pattern, true, budget).ends(chars);
  let result = '';
  let lastEnd = -1;
  for (let at = 0; at <= chars.length;) {
    const end = ends[at] ?? -1;
    if (end < 0 || (end === at && at === lastEnd)) {
      result += chars[at] ?? '';
      at++;
      continue;
    }
    result += replacement;
    if (result.length > MAX_WORD) throw new DockerfileError('the value is too long');
    lastEnd = end;
    if (!isAll) return result + chars.slice(end).join('');
    if (end === at) result += chars[at] ?? '';
    at = Math.max(end, at + 1);
  }
  return result;
}
