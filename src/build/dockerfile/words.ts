/** Cuts the arguments of instructions into words, in the ways that the instructions have. */
import type { KeyValue } from './ast.js';
import { DockerfileError } from './dockerfile-error.js';
import { isSpace } from './shell-lexer.js';

/** The white space between a keyword and its arguments, and between plain arguments. */
const BLANKS = /[\t\v\f\r ]+/;

/** More words are refused, because an instruction is worked on in one go for all of its words. */
const MAX_WORDS = 10_000;
/** Each flag costs more than a word. */
const MAX_FLAGS = 1000;

/** Returns the words when there are not too many. @throws DockerfileError without lines. */
export function fewWords<T extends { readonly length: number }>(words: T): T {
  if (words.length > MAX_WORDS) throw new DockerfileError(`an instruction has more than ${MAX_WORDS} words`);
  return words;
}

/** @throws DockerfileError without lines about too many words, as all of these functions. */
export function splitBlanks(text: string): string[] {
  return fewWords(text.split(BLANKS, MAX_WORDS + 1));
}

/** Returns what stands before the first blanks and what follows them. */
export function cutBlanks(text: string): readonly [string, string | undefined] {
  const match = BLANKS.exec(text);
  if (match === null) return [text, undefined];
  return [text.slice(0, match.index), text.slice(match.index + match[0].length)];
}

/** White space as Go's strings.TrimSpace knows it, which leaves U+FEFF where it is. */
export function trimSpace(text: string): string {
  let start = 0;
  let end = text.length;
  while (start < end && isSpace(text[start] ?? '')) start++;
  while (end > start && isSpace(text[end - 1] ?? '')) end--;
  return text.slice(start, end);
}

/** Words as in a shell. Quotes and escape characters stay in them: the lexer removes them later. */
export function shellWords(text: string, escape: string): string[] {
  const words: string[] = [];
  let quote = '';
  /** Where the word begins; undefined: between words. */
  let start: number | undefined;
  let end = text.length;
  for (let at = 0; at < end; at++) {
    const char = text[at] ?? '';
    if (quote === '' && isSpace(char)) {
      if (start !== undefined) fewWords(words).push(text.slice(start, at));
      start = undefined;
      continue;
    }
    start ??= at;
    if (char === quote) quote = '';
    else if (quote === '' && (char === '"' || char === "'")) quote = char;
    // The last escape character has nothing to escape, and is no part of the word.
    else if (char === escape && quote !== "'" && ++at === text.length) end--;
  }
  if (start !== undefined && start < end) words.push(text.slice(start, end));
  return fewWords(words);
}

/** Finds the flags before the arguments: words that begin with two dashes, without their quotes. */
export function splitFlags(text: string, escape: string): { readonly flags: string[]; readonly rest: string } {
  const flags: string[] = [];
  let at = 0;
  for (;;) {
    while (at < text.length && isSpace(text[at] ?? '')) at++;
    if (!text.startsWith('--', at)) return { flags, rest: text.slice(at) };
    const word = flagWord(text, at, escape);
    at = word.end;
    if (word.text === '--') return { flags, rest: text.slice(at) };
    if (word.text !== '') flags.push(word.text);
    if (flags.length > MAX_FLAGS) throw new DockerfileError(`an instruction has more than ${MAX_FLAGS} flags`);
  }
}

function flagWord(text: string, start: number, escape: string): { readonly text: string; readonly end: number } {
  let word = '';
  let quote = '';
  let at = start;
  for (; at < text.length; at++) {
    const char = text[at] ?? '';
    if (quote === '' && isSpace(char)) break;
    if (quote !== '' && char === quote) quote = '';
    else if (quote === '' && (char === '"' || char === "'")) quote = char;
    else word += char === escape ? (text[++at] ?? '') : char;
  }
  return { text: word, end: at };
}

/**
 * Returns the strings of a JSON array; undefined when the text is none, which is a line for a shell then.
 * @throws DockerfileError when other things than strings are in the array.
 */
export function jsonStrings(text: string): string[] | undefined {
  const json = trimSpace(text);
  if (!json.startsWith('[')) return undefined;
  let values: unknown;
  try {
    values = JSON.parse(json);
  } catch {
    return undefined;
  }
  if (!Array.isArray(values)) return undefined;
  return fewWords(values).map((value: unknown) => {
    if (typeof value === 'string') return Buffer.from(value).toString();
    throw new DockerfileError('when using JSON array syntax, arrays must be comprised of strings only');
  });
}

/** `key=value …`, or `key value` in the old form, whose value is all the rest. */
export function pairsIn(text: string, command: string, escape: string): KeyValue[] {
  const words = shellWords(text, escape);
  const [first] = words;
  if (first === undefined) return [];
  if (!first.includes('=')) {
    const [key, value] = cutBlanks(text);
    if (value === undefined) throw new DockerfileError(`${command} must have two arguments`);
    return [{ key, value, isLegacy: true }];
  }
  return words.map((word) => {
    const sign = word.indexOf('=');
    if (sign < 0) {
      const quoted = JSON.stringify(word);
      throw new DockerfileError(`Syntax error - can't find = in ${quoted}. Must be of the form: name=value`);
    }
    return { key: word.slice(0, sign), value: word.slice(sign + 1), isLegacy: false };
  });
}
