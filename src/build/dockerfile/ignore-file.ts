/**
 * `.dockerignore`: which files of a context stay out. Patterns have the meaning of Go's filepath.Match with `**`, a
 * later one wins, and what is below a matched directory is matched too. A walk hands the result for a directory to its
 * entries. A path costs its length times that of the patterns with wildcards, whose length together has a limit.
 */
import { posix } from 'node:path';
import { DockerfileError } from './dockerfile-error.js';
import { compileGlob } from '../../text/glob.js';
import { WorkBudget } from '../../text/work-budget.js';
import { trimSpace } from './words.js';

/** More or longer ones are refused. */
const MAX_PATTERNS = 10_000;
const MAX_PATTERN = 1000;
const MAX_WILDCARD_CHARACTERS = 200_000;

/** Where the ignore file of a Dockerfile may be, first the one that counts when both are there. */
export function ignoreFileNames(dockerfile: string): readonly [own: string, shared: string] {
  return [`${dockerfile}.dockerignore`, '.dockerignore'];
}

/** Returns the patterns of the file, clean, without comments. @throws DockerfileError about too many. */
export function parseIgnoreFile(source: Buffer | string): string[] {
  const text = typeof source === 'string' ? source : source.toString('utf8');
  const patterns: string[] = [];
  for (const line of text.replace(/^\uFEFF/, '').split('\n')) {
    if (line.startsWith('#')) continue;
    const written = trimSpace(line);
    if (written === '') continue;
    const isException = written.startsWith('!');
    const rest = isException ? trimSpace(written.slice(1)) : written;
    const clean = rest === '' ? '' : cleanPath(rest);
    const relative = clean.length > 1 && clean.startsWith('/') ? clean.slice(1) : clean;
    patterns.push((isException ? '!' : '') + relative);
    if (patterns.length > MAX_PATTERNS)
      throw new DockerfileError(`.dockerignore has more than ${MAX_PATTERNS} patterns`);
  }
  return patterns;
}

/** For each pattern whether it has matched the directory or one above it. */
export type DirectoryMatch = readonly boolean[];

const SPECIAL = /[*?[\]\\]/;

interface Pattern {
  readonly isException: boolean;
  readonly matches: (path: string) => boolean;
}

export class IgnoreMatcher {
  readonly #patterns: readonly Pattern[];

  /** @param patterns with `!` before exceptions. @throws DockerfileError about a bad one. */
  constructor(patterns: readonly string[]) {
    if (patterns.length > MAX_PATTERNS) throw new DockerfileError(`there are more than ${MAX_PATTERNS} patterns`);
    let length = 0;
    for (const pattern of patterns) if (SPECIAL.test(pattern)) length += pattern.length;
    if (length > MAX_WILDCARD_CHARACTERS) throw new DockerfileError('the patterns of .dockerignore are too long');
    this.#patterns = patterns.map(compile).filter((pattern) => pattern !== undefined);
  }

  /** False when a file below a matched directory cannot come back, so that a walk need not enter the directory. */
  get hasExceptions(): boolean {
    return this.#patterns.some(({ isException }) => isException);
  }

  /**
   * Says whether an entry of a directory is left out.
   * @param path relative to the context, with slashes. @param parent what this method has returned for its directory;
   * undefined at the top of the context.
   */
  matchBelow(path: string, parent?: DirectoryMatch): { readonly isIgnored: boolean; readonly match: DirectoryMatch } {
    let isIgnored = false;
    const match = this.#patterns.map(({ isException, matches }, i) => {
      // A pattern that can change nothing is not tried.
      const isMatch = parent?.[i] === true || (isException === isIgnored && matches(path));
      if (isMatch) isIgnored = !isException;
      return isMatch;
    });
    return { isIgnored, match };
  }

  /** Says the same for a single path, of which no parent has been looked at. */
  matches(path: string): boolean {
    const prefixes = prefixesOf(path);
    let isIgnored = false;
    for (const { isException, matches } of this.#patterns) {
      if (isException === isIgnored && prefixes.some(matches)) isIgnored = !isException;
    }
    return isIgnored;
  }
}

/** Returns which of the paths an ignore file leaves out; none when its patterns are bad. */
export function namedBy(source: Buffer | string, paths: readonly string[]): string[] {
  try {
    const matcher = new IgnoreMatcher(parseIgnoreFile(source));
    return paths.filter((path) => matcher.matches(path));
  } catch {
    return [];
  }
}

/** Returns the path and its parents, the path first. */
function prefixesOf(path: string): string[] {
  const prefixes = [path];
  for (let at = path.indexOf('/'); at >= 0; at = path.indexOf('/', at + 1)) prefixes.push(path.slice(0, at));
  return prefixes;
}

function compile(written: string): Pattern | undefined {
  const text = trimSpace(written);
  if (text === '') return undefined;
  const clean = cleanPath(text);
  const isException = clean.startsWith('!');
  if (clean === '!') throw new DockerfileError('illegal exclusion pattern: "!"');
  const pattern = isException ? clean.slice(1) : clean;
  checkSyntax(pattern);
  return { isException, matches: matcherOf(pattern) };
}

function checkSyntax(pattern: string): void {
  if (pattern.length > MAX_PATTERN) throw new DockerfileError(`pattern is longer than ${MAX_PATTERN} characters`);
  // A pattern without these has no syntax.
  if (/[\\[\]]/.test(pattern)) compileGlob(pattern, new WorkBudget('.dockerignore'));
}

/** `one` is any character but a slash, `any` a run of these; `all` is any text, `deep` one that ends with a slash. */
type Piece = { readonly literal: string } | 'one' | 'any' | 'all' | 'deep' | ((char: string) => boolean);

function matcherOf(pattern: string): (path: string) => boolean {
  const special = SPECIAL.exec(pattern)?.index;
  if (special === undefined) return (path) => path === pattern;
  const prefix = pattern.slice(0, special);
  const rest = pattern.slice(special);
  // Nothing but `**` at the end takes everything that begins so, without a slash between them too.
  if (rest === '**') return (path) => path.startsWith(prefix);
  const suffix = rest.slice(2);
  if (prefix === '' && rest.startsWith('**') && !SPECIAL.test(suffix))
    return (path) => path.endsWith(suffix) || (suffix.startsWith('/') && path === suffix.slice(1));
  const pieces = piecesOf(rest);
  return (path) => path.startsWith(prefix) && matchPieces(pieces, Array.from(path.slice(prefix.length)));
}

function piecesOf(pattern: string): Piece[] {
  const chars = Array.from(pattern);
  const pieces: Piece[] = [];
  for (let at = 0; at < chars.length; at++) {
    const char = chars[at] ?? '';
    if (char === '*' && chars[at + 1] === '*') {
      at++;
      if (chars[at + 1] === '/') at++;
      pieces.push(at + 1 === chars.length ? 'all' : 'deep');
    } else if (char === '*') pieces.push('any');
    else if (char === '?') pieces.push('one');
    else if (char === '[') {
      const end = setEnd(chars, at);
      pieces.push(compileGlob(chars.slice(at, end + 1).join(''), new WorkBudget('.dockerignore')));
      at = end;
    } else pieces.push({ literal: char === '\\' ? (chars[++at] ?? char) : char });
  }
  return pieces;
}

/** Returns where the set ends that begins here; its syntax has been checked. */
function setEnd(chars: readonly string[], start: number): number {
  let at = start + (chars[start + 1] === '^' ? 2 : 1);
  for (; at < chars.length && chars[at] !== ']'; at++) if (chars[at] === '\\') at++;
  return at;
}

/** From the last piece to the first: the cost is the number of pieces times the length of the path. */
function matchPieces(pieces: readonly Piece[], path: readonly string[]): boolean {
  let after = new Uint8Array(path.length + 1);
  after[path.length] = 1;
  for (const piece of pieces.toReversed()) {
    const here = new Uint8Array(path.length + 1);
    let isDeeper = 0;
    for (let at = path.length; at >= 0; at--) {
      const char = path[at];
      const rest = after[at] ?? 0;
      const next = after[at + 1] ?? 0;
      if (piece === 'all') here[at] = rest | (here[at + 1] ?? 0);
      else if (piece === 'any') here[at] = rest | (char === '/' ? 0 : (here[at + 1] ?? 0));
      else if (piece === 'deep') {
        if (char === '/') isDeeper |= next;
        here[at] = rest | isDeeper;
      } else if (char !== undefined && matchesOne(piece, char)) here[at] = next;
    }
    after = here;
  }
  return after[0] === 1;
}

function matchesOne(piece: { readonly literal: string } | 'one' | ((char: string) => boolean), char: string): boolean {
  if (piece === 'one') return char !== '/';
  return typeof piece === 'function' ? piece(char) : piece.literal === char;
}

/** Go's filepath.Clean. */
function cleanPath(path: string): string {
  const normal = posix.normalize(path);
  return normal.length > 1 && normal.endsWith('/') ? normal.slice(0, -1) : normal;
}
