/** `<<EOF` in RUN, COPY and ADD: text that follows the instruction up to a line with the name. */
import type { Heredoc } from './ast.js';
import { NO_ENVIRONMENT, ShellLexer } from './shell-lexer.js';
import { DockerfileError } from './dockerfile-error.js';

export type HeredocMark = Omit<Heredoc, 'content'>;

/** So many of one instruction are read, far more than any has. */
const MAX_HEREDOCS = 1000;
const BEGINNING = /^\d*<</;
const DIGITS = /^\d*$/;
const LEADING_BLANKS = /^[\t\n\f\r ]+/;
const OPTIONS = { escape: '\\', keepsUnset: true } as const;

/** Returns the heredocs that an instruction announces. @throws DockerfileError without lines about a name. */
export function heredocMarks(line: string): HeredocMark[] {
  const lexer = new ShellLexer({ ...OPTIONS, keepsQuotes: true, keepsEscapes: true });
  let words: readonly string[];
  try {
    // A line of many words would take long, and few of them are marks.
    words = lexer.words(line, NO_ENVIRONMENT, '<');
  } catch (error) {
    // The line is for a shell, which understands more than this lexer.
    if (error instanceof DockerfileError) return [];
    throw error;
  }
  const candidates = words.filter((word) => BEGINNING.test(word));
  if (candidates.length > MAX_HEREDOCS)
    throw new DockerfileError(`an instruction has more than ${MAX_HEREDOCS} heredocs`);
  return candidates.map(heredocMark).filter((mark) => mark !== undefined);
}

/** Returns undefined when the word is no heredoc. @throws DockerfileError without lines about the name. */
export function heredocMark(word: string): HeredocMark | undefined {
  const start = word.indexOf('<<');
  const fd = word.slice(0, Math.max(start, 0));
  if (start < 0 || !DIGITS.test(fd)) return undefined;
  const chomp = word[start + 2] === '-';
  const rest = word.slice(start + (chomp ? 3 : 2)).replace(LEADING_BLANKS, '');
  if (rest === '' || rest.includes('<')) return undefined;
  const words = new ShellLexer(OPTIONS).words(rest, NO_ENVIRONMENT);
  const [name] = words;
  if (words.length !== 1 || name === undefined) return undefined;
  const raw = new ShellLexer({ ...OPTIONS, keepsQuotes: true }).words(rest, NO_ENVIRONMENT)[0] ?? '';
  return { name, expand: quotesIn(name) === quotesIn(raw), chomp, fd: Number(fd || 0) };
}

function quotesIn(text: string): number {
  return text.split(/['"]/).length - 1;
}

/** Removes the tabs before each line. */
export function chompHeredoc(content: string): string {
  return content.replace(/^\t+/gm, '');
}
