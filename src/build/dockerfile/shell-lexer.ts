/**
 * Replaces variables in words of a Dockerfile and removes their quotes, as BuildKit's lexer does: `$x`, `${x}`, with
 * `:-` `-` `:+` `+` `:?` `?` `#` `##` `%` `%%` `/` `//`. What it costs grows with the text and the values; a limit on
 * what comes out keeps `ENV a=$a$a` on many lines from filling the memory.
 */
import { WorkBudget } from '../../text/work-budget.js';
import { DockerfileError } from './dockerfile-error.js';
import { compileReversed, compileShellPattern } from './shell-pattern.js';

export interface Environment {
  get(name: string): string | undefined;
}

export interface LexerOptions {
  readonly escape: '\\' | '`';
  /** Quotes stay in the result. */
  readonly keepsQuotes?: boolean;
  /** Escape characters stay in the result. */
  readonly keepsEscapes?: boolean;
  /** Quotes are characters like others. */
  readonly ignoresQuotes?: boolean;
  /** Variables without a value stay as they are written. */
  readonly keepsUnset?: boolean;
}

export interface ProcessedWord {
  readonly result: string;
  /** The result cut at white space that was not quoted. */
  readonly words: readonly string[];
  /** Names of variables that have a value. */
  readonly matched: ReadonlySet<string>;
  readonly unmatched: ReadonlySet<string>;
}

export type UnmatchedObserver = (names: ReadonlySet<string>) => void;

export const NO_ENVIRONMENT: Environment = { get: () => undefined };

/** The results of one word, and those of all words of one lexer, have at most so many characters. */
const MAX_WORD = 1 << 20;
const MAX_TOTAL = 1 << 26;
const MAX_DEPTH = 100;

export class ShellLexer {
  readonly #budget = new WorkBudget('Dockerfile');
  #left = MAX_TOTAL;

  constructor(private readonly options: LexerOptions) {}

  /**
   * @param observer hears which variables have no value, also when there is an error.
   * @throws DockerfileError without lines.
   */
  process(text: string, environment: Environment, observer?: UnmatchedObserver): ProcessedWord {
    const scanner = new WordScanner(text, environment, this.options, this.#budget);
    let processed: ProcessedWord;
    try {
      processed = scanner.run();
    } finally {
      observer?.(scanner.unmatched);
    }
    this.#left -= processed.result.length;
    if (this.#left < 0) throw new DockerfileError('the values of variables are too long');
    return processed;
  }
}

/** Collects the words while the text is read. */
class Words {
  readonly #words: string[] = [];
  #word = '';
  #isInside = false;

  add(text: string): void {
    for (const char of text) {
      if (!isSpace(char)) this.addRaw(char);
      else if (this.#isInside && this.#word !== '') this.#end();
    }
  }

  addRaw(text: string): void {
    this.#word += text;
    this.#isInside = true;
  }

  finish(): string[] {
    if (this.#word !== '') this.#end();
    return this.#words;
  }

  #end(): void {
    this.#words.push(this.#word);
    this.#word = '';
    this.#isInside = false;
  }
}

class WordScanner {
  readonly #chars: readonly string[];
  readonly #matched = new Set<string>();
  readonly unmatched = new Set<string>();
  #at = 0;
  #depth = 0;
  #made = 0;

  constructor(
    private readonly source: string,
    private readonly environment: Environment,
    private readonly options: LexerOptions,
    private readonly budget: WorkBudget,
  ) {
    this.#chars = Array.from(source);
  }

  run(): ProcessedWord {
    try {
      const { result, words } = this.#until(undefined, this.options.keepsEscapes ?? false);
      return { result, words, matched: this.#matched, unmatched: this.unmatched };
    } catch (error) {
      if (!(error instanceof DockerfileError)) throw error;
      throw new DockerfileError(`failed to process ${JSON.stringify(this.source)}: ${error.message}`);
    }
  }

  get #next(): string | undefined {
    return this.#chars[this.#at];
  }

  /** Reads up to the character, which is consumed, or to the end. */
  #until(stop: string | undefined, keepsEscapes: boolean): { readonly result: string; readonly words: string[] } {
    if (++this.#depth > MAX_DEPTH) throw new DockerfileError('syntax error: substitutions are nested too deeply');
    let result = '';
    const words = new Words();
    for (let char = this.#next; char !== undefined; char = this.#next) {
      if (char === stop) {
        this.#at++;
        this.#depth--;
        return { result, words: words.finish() };
      }
      if (char === '$') {
        const value = this.#dollar();
        result += value;
        words.add(value);
      } else if (char === '<' || (!this.options.ignoresQuotes && (char === "'" || char === '"'))) {
        const piece = this.#special(char, keepsEscapes);
        result += piece;
        words.addRaw(piece);
      } else {
        this.#at++;
        if (char === this.options.escape) {
          const escaped = this.#next;
          const piece = (keepsEscapes ? char : '') + (escaped ?? '');
          this.#at++;
          result += piece;
          if (piece !== '') words.addRaw(piece);
        } else {
          words.add(char);
          result += char;
        }
      }
      if (result.length > MAX_WORD) throw new DockerfileError('the value is too long');
    }
    if (stop !== undefined) throw new DockerfileError(`unexpected end of statement while looking for matching ${stop}`);
    this.#depth--;
    return { result, words: words.finish() };
  }

  #special(char: string, keepsEscapes: boolean): string {
    if (char === '<') return this.#possibleHeredoc();
    return char === "'" ? this.#singleQuoted() : this.#doubleQuoted(keepsEscapes);
  }

  /** White space between `<<` and the name belongs to the word. */
  #possibleHeredoc(): string {
    const start = this.#at++;
    if (this.#next === '<') {
      do this.#at++;
      while (isBlank(this.#next));
    }
    return this.#chars.slice(start, this.#at).join('');
  }

  #singleQuoted(): string {
    const end = this.#chars.indexOf("'", this.#at + 1);
    if (end < 0) {
      this.#at = this.#chars.length;
      throw new DockerfileError('unexpected end of statement while looking for matching single-quote');
    }
    const inner = this.#chars.slice(this.#at + 1, end).join('');
    this.#at = end + 1;
    return this.options.keepsQuotes ? `'${inner}'` : inner;
  }

  #doubleQuoted(keepsEscapes: boolean): string {
    const quote = this.options.keepsQuotes ? '"' : '';
    let result = quote;
    this.#at++;
    for (let char = this.#next; char !== undefined; char = this.#next) {
      if (char === '"') {
        this.#at++;
        return result + quote;
      }
      if (char === '$') result += this.#dollar();
      else {
        this.#at++;
        if (char === this.options.escape) {
          if (keepsEscapes) result += char;
          const escaped = this.#next;
          if (escaped === undefined) break;
          if (escaped === '"' || escaped === '$' || escaped === this.options.escape) {
            char = escaped;
            this.#at++;
          }
        }
        result += char;
      }
      if (result.length > MAX_WORD) throw new DockerfileError('the value is too long');
    }
    throw new DockerfileError('unexpected end of statement while looking for matching double-quote');
  }

  #dollar(): string {
    this.#at++;
    if (this.#next !== '{') {
      const name = this.#name();
      if (name === '') return '$';
      return this.#value(name) ?? (this.options.keepsUnset ? `$${name}` : '');
    }
    this.#at++;
    if (this.#next === undefined) throw new DockerfileError("syntax error: missing '}'");
    if (this.#next === '{' || this.#next === '}' || this.#next === ':') throw badSubstitution();
    const name = this.#name();
    const operator = this.#take();
    if (operator === '}') return this.#value(name) ?? (this.options.keepsUnset ? `\${${name}}` : '');
    if (operator === '/') return this.#replace(name);
    const isNullUnset = operator === ':';
    const modifier = isNullUnset ? this.#take() : operator;
    return this.#modify(name, modifier, isNullUnset);
  }

  /** `${name<modifier>word}`, with a colon before the modifier when an empty value counts as none. */
  #modify(name: string, modifier: string, isNullUnset: boolean): string {
    const written = (isNullUnset ? ':' : '') + modifier;
    const isTrim = modifier === '#' || modifier === '%';
    if ((isNullUnset && isTrim) || (!isNullUnset && !'+-?#%'.includes(modifier))) throw unsupported(written);
    const word = this.#operand('}', isTrim, "'}'");
    const value = this.#value(name);
    if (value === undefined && this.options.keepsUnset) return `\${${name}${written}${word}}`;
    const isUnset = value === undefined || (isNullUnset && value === '');
    if (modifier === '-') return isUnset ? word : value;
    if (modifier === '+') return isUnset ? '' : word;
    if (modifier === '?') {
      if (!isUnset) return value;
      throw new DockerfileError(
        `${name}: ${word || `is not allowed to be ${value === undefined ? 'unset' : 'empty'}`}`,
      );
    }
    if (!isTrim) throw unsupported(written);
    const isGreedy = word.startsWith(modifier);
    const pattern = isGreedy ? word.slice(1) : word;
    return modifier === '#'
      ? trimStart(pattern, value ?? '', isGreedy, this.budget)
      : trimEnd(pattern, value ?? '', isGreedy, this.budget);
  }

  /** `${name/pattern/replacement}`, with two strokes for all matches. */
  #replace(name: string): string {
    const isAll = this.#next === '/';
    if (isAll) this.#at++;
    const pattern = this.#operand('/', true, "'/' in ${}");
    const replacement = this.#operand('}', true, "'}'");
    const value = this.#value(name);
    if (value === undefined && this.options.keepsUnset) return `\${${name}/${pattern}/${replacement}}`;
    return replaceIn(value ?? '', pattern, replacement, { isAll, budget: this.budget });
  }

  #operand(stop: string, keepsEscapes: boolean, missing: string): string {
    try {
      return this.#until(stop, keepsEscapes).result;
    } catch (error) {
      if (error instanceof DockerfileError && this.#next === undefined)
        throw new DockerfileError(`syntax error: missing ${missing}`);
      throw error;
    }
  }

  #take(): string {
    const char = this.#next;
    this.#at++;
    return char ?? '\uFFFD';
  }

  #name(): string {
    const start = this.#at;
    const first = this.#next;
    if (first === undefined) return '';
    if (isDigit(first)) while (this.#next !== undefined && isDigit(this.#next)) this.#at++;
    else if ('@*#?-$!'.includes(first)) this.#at++;
    else while (this.#next !== undefined && isNameCharacter(this.#next)) this.#at++;
    return this.#chars.slice(start, this.#at).join('');
  }

  #value(name: string): string | undefined {
    const value = this.environment.get(name);
    (value === undefined ? this.unmatched : this.#matched).add(name);
    this.#made += value?.length ?? 0;
    if (this.#made > MAX_WORD * 4) throw new DockerfileError('the value is too long');
    return value;
  }
}

function trimStart(pattern: string, value: string, isGreedy: boolean, budget: WorkBudget): string {
  const chars = Array.from(value);
  const end = compileShellPattern(pattern, isGreedy, budget).ends(chars)[0] ?? -1;
  return end < 0 ? value : chars.slice(end).join('');
}

function trimEnd(pattern: string, value: string, isGreedy: boolean, budget: WorkBudget): string {
  const chars = Array.from(value).reverse();
  const end = compileReversed(pattern, isGreedy, budget).ends(chars)[0] ?? -1;
  return end < 0 ? value : chars.slice(end).reverse().join('');
}

interface Replacing {
  readonly isAll: boolean;
  readonly budget: WorkBudget;
}

/** An empty match right behind another match does not count, as in Go. */
function replaceIn(value: string, pattern: string, replacement: string, { isAll, budget }: Replacing): string {
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

function badSubstitution(): Error {
  return new DockerfileError('syntax error: bad substitution');
}

function unsupported(modifier: string): Error {
  return new DockerfileError(`unsupported modifier (${modifier}) in substitution`);
}

/** The answer is that of Go's unicode.IsSpace. */
export function isSpace(char: string): boolean {
  return /^[\t\n\v\f\r \u0085\u00A0\p{White_Space}]$/u.test(char);
}

function isBlank(char: string | undefined): boolean {
  return char === ' ' || char === '\t' || char === '\r';
}

function isDigit(char: string): boolean {
  return /^\p{Nd}$/u.test(char);
}

function isNameCharacter(char: string): boolean {
  return /^[\p{L}\p{Nd}_]$/u.test(char);
}
