/**
 * Reads a Dockerfile into instructions that are not understood yet: joins continued lines, leaves comments out, and
 * finds heredocs. The cost is linear in the size of the file.
 */
import { type Parts, whole } from '../../text/turns.js';
import type { Directives, Heredoc, LineRange } from './ast.js';
import { BOM, DirectiveReader } from './directives.js';
import { atLines, DockerfileError } from './dockerfile-error.js';
import { heredocMarks, type HeredocMark } from './heredocs.js';
import { isSpace } from './shell-lexer.js';
import { cutBlanks, jsonStrings, pairsIn, splitFlags, trimSpace } from './words.js';

/** An instruction: its flags and its arguments, which are still one text. */
export interface Node {
  readonly keyword: string;
  readonly flags: readonly string[];
  readonly rest: string;
  readonly original: string;
  readonly heredocs: readonly Heredoc[];
  readonly comments: readonly string[];
  readonly lines: LineRange;
}

export interface Nodes {
  readonly nodes: readonly Node[];
  readonly directives: Directives;
  readonly escape: '\\' | '`';
  readonly emptyContinuations: readonly number[];
}

/** A longer file is refused. */
const MAX_BYTES = 1 << 20;
const MAX_LINE_BYTES = 65_535;
/** So many lines are kept of the comment before an instruction, the last ones. */
const MAX_COMMENTS = 1000;

export function readNodes(text: string): Nodes {
  return whole(nodeParts(text));
}

/** The same in parts. */
export function nodeParts(text: string): Parts<Nodes> {
  return new NodeReader(text).read();
}

class NodeReader {
  readonly #text: string;
  /** Where the next line begins. */
  #offset = 0;
  readonly #directives = new DirectiveReader();
  readonly #nodes: Node[] = [];
  readonly #emptyContinuations: number[] = [];
  #escape: '\\' | '`' = '\\';
  #comments: string[] = [];
  /** The number of lines that have been read. */
  #at = 0;

  constructor(text: string) {
    if (text.length > MAX_BYTES)
      throw new DockerfileError(`Dockerfile is greater than max allowed size of ${MAX_BYTES}`);
    this.#text = text.startsWith(BOM) ? text.slice(1) : text;
  }

  *read(): Parts<Nodes> {
    for (let line = this.#take(); line !== undefined; line = this.#take()) {
      yield;
      const text = this.#withoutComment(line);
      if (text === undefined) continue;
      const start = this.#at;
      const original = yield* this.#joinContinuations(text);
      if (original !== undefined) yield* this.#add(original, start);
    }
    if (this.#nodes.length === 0) throw new DockerfileError('file with no instructions', at(this.#at));
    return {
      nodes: this.#nodes,
      directives: this.#directives.directives,
      escape: this.#escape,
      emptyContinuations: this.#emptyContinuations,
    };
  }

  /** Returns the line with its end. */
  #take(): string | undefined {
    if (this.#offset === this.#text.length) return undefined;
    const newline = this.#text.indexOf('\n', this.#offset);
    const end = newline < 0 ? this.#text.length : newline + 1;
    const line = this.#text.slice(this.#offset, end);
    if (line.length * 3 > MAX_LINE_BYTES && Buffer.byteLength(line) > MAX_LINE_BYTES) {
      throw new DockerfileError(`dockerfile line greater than max allowed size of ${MAX_LINE_BYTES}`, at(this.#at));
    }
    this.#at++;
    this.#offset = end;
    return line;
  }

  /** Returns a line where an instruction may begin, without white space before it; undefined for a comment. */
  #withoutComment(line: string): string | undefined {
    const text = trimStart(trimNewline(line));
    const isComment = text.startsWith('#');
    if (!this.#readDirective(text) && isComment) {
      const comment = trimSpace(line.slice(1));
      if (comment === '') this.#comments = [];
      else this.#comments.push(comment);
      if (this.#comments.length > MAX_COMMENTS) this.#comments.shift();
    }
    return isComment ? undefined : text;
  }

  #readDirective(text: string): boolean {
    // The lines of this error are those before the directive, as clients have always been told.
    const before = this.#at > 1 ? at(this.#at - 1) : undefined;
    return atLines(before, () => {
      const name = this.#directives.read(text);
      if (name === 'escape') this.#escape = escapeOf(this.#directives.get('escape')?.value ?? '');
      return name !== undefined;
    });
  }

  /** Returns undefined when there is nothing but white space. */
  *#joinContinuations(first: string): Parts<string | undefined> {
    let { text, isContinued } = this.#withoutContinuation(first);
    if (!isContinued && text === '') return undefined;
    const parts = [text];
    let hasEmptyLine = false;
    while (isContinued) {
      yield;
      const line = this.#take();
      if (line === undefined) break;
      const trimmed = trimNewline(line);
      const shown = trimStart(trimmed);
      if (shown.startsWith('#')) continue;
      if (shown === '') {
        hasEmptyLine = true;
        continue;
      }
      ({ text, isContinued } = this.#withoutContinuation(trimmed));
      parts.push(text);
    }
    if (hasEmptyLine) this.#emptyContinuations.push(this.#at);
    return parts.join('');
  }

  /** An escape character at the end continues the line, unless another one is before it. */
  #withoutContinuation(line: string): { readonly text: string; readonly isContinued: boolean } {
    let end = line.length;
    while (end > 0 && (line[end - 1] === ' ' || line[end - 1] === '\t')) end--;
    const isContinued = line[end - 1] === this.#escape && line[end - 2] !== this.#escape;
    return { text: isContinued ? line.slice(0, end - 1) : line, isContinued };
  }

  *#add(original: string, start: number): Parts<void> {
    const lines = { start, end: this.#at };
    const split = atLines(lines, () => splitInstruction(original, this.#escape));
    const marks = atLines(lines, () => {
      checkArguments(split, this.#escape);
      return canHaveHeredocs(split, this.#escape) && original.includes('<<') ? heredocMarks(original) : [];
    });
    const heredocs: Heredoc[] = [];
    for (const mark of marks) heredocs.push(yield* this.#readHeredoc(mark, start));
    this.#nodes.push({
      ...split,
      original: trimSpace(original),
      heredocs,
      comments: this.#comments,
      lines: { start, end: this.#at },
    });
    this.#comments = [];
  }

  *#readHeredoc(mark: HeredocMark, start: number): Parts<Heredoc> {
    const begin = this.#offset;
    for (let end = begin, line = this.#take(); line !== undefined; end = this.#offset, line = this.#take()) {
      yield;
      const text = trimNewline(line);
      if ((mark.chomp ? text.replace(/^\t+/, '') : text) !== mark.name) continue;
      return { ...mark, content: this.#text.slice(begin, end) };
    }
    throw new DockerfileError('unterminated heredoc', { start, end: this.#at });
  }
}

export interface SplitInstruction {
  readonly keyword: string;
  readonly flags: readonly string[];
  readonly rest: string;
}

export function splitInstruction(line: string, escape: string): SplitInstruction {
  const [keyword, args] = cutBlanks(trimSpace(line));
  if (args === undefined) return { keyword, flags: [], rest: '' };
  const { flags, rest } = splitFlags(args, escape);
  return { keyword, flags, rest: trimSpace(rest) };
}

const MAY_BE_JSON: ReadonlySet<string> = new Set(['add', 'cmd', 'copy', 'entrypoint', 'run', 'shell', 'volume']);
const HAVE_HEREDOCS: ReadonlySet<string> = new Set(['add', 'copy', 'run']);

/** Arguments that cannot be cut into pieces are wrong before any instruction is understood. */
function checkArguments({ keyword, rest }: SplitInstruction, escape: string): void {
  const name = keyword.toLowerCase();
  if (MAY_BE_JSON.has(name)) jsonStrings(rest);
  else if (name === 'healthcheck') jsonStrings(cutBlanks(rest)[1] ?? '');
  else if (name === 'env' || name === 'label') pairsIn(rest, name.toUpperCase(), escape);
  else if (name === 'onbuild' && rest !== '') {
    const inner = splitInstruction(rest, escape);
    if (inner.keyword.toLowerCase() !== 'onbuild') checkArguments(inner, escape);
  }
}

function canHaveHeredocs(split: SplitInstruction, escape: string): boolean {
  const inner = split.keyword.toLowerCase() === 'onbuild' ? splitInstruction(split.rest, escape) : split;
  return HAVE_HEREDOCS.has(inner.keyword.toLowerCase()) && jsonStrings(inner.rest) === undefined;
}

function escapeOf(value: string): '\\' | '`' {
  if (value === '\\' || value === '`') return value;
  throw new DockerfileError(`invalid escape token '${value}' does not match \` or \\`);
}

function trimNewline(line: string): string {
  let end = line.length;
  while (end > 0 && (line[end - 1] === '\n' || line[end - 1] === '\r')) end--;
  return line.slice(0, end);
}

function trimStart(line: string): string {
  let start = 0;
  while (start < line.length && isSpace(line[start] ?? '')) start++;
  return line.slice(start);
}

function at(line: number): LineRange {
  return { start: line, end: line };
}
