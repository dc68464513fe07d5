/**
 * Replaces variables in words of a Dockerfile and removes their quotes, as BuildKit's lexer does: `$x`, `${x}`, with
 * `:-` `-` `:+` `+` `:?` `?` `#` `##` `%` `%%` `/` `//`. What it costs grows with the text and the values; a limit on
 * what comes out keeps `ENV a=$a$a` on many lines from filling the memory.
 */
import { WorkBudget } from '../../text/work-budget.js';
import { DockerfileError } from './dockerfile-error.js';
import { MAX_WORD, replaceIn, trimEnd, trimStart } from './shell-pattern.js';

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
  /** Names of variables that have a value. */
  readonly matched: ReadonlySet<string>;
  readonly unmatched: ReadonlySet<string>;
}

export type UnmatchedObserver = (names: ReadonlySet<string>) => void;

export const NO_ENVIRONMENT: Environment = { get: () => undefined };

/** The results of all words of one lexer have at most so many characters. */
const MAX_TOTAL = 1 << 26;
const MAX_DEPTH = 100;

/** The codes of characters that may mean more than themselves: `$`, `<` and quotes. */
const [DOLLAR, LESS, SINGLE, DOUBLE] = [0x24, 0x3c, 0x27, 0x22] as const;

/** The same characters as those of `isSpace`. */
const SPACES = /[\t-\r \u0085\u00A0\u1680\u2000-\u200A\u2028\u2029\u202F\u205F\u3000]+/;

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
    this.#spend(processed);
    return processed;
  }

  /**
   * Returns the result cut at white space that was not quoted.
   * @param having says that of all words only those matter that have this in them; others may be missing.
   * @throws DockerfileError without lines.
   */
  words(text: string, environment: Environment, having = ''): string[] {
    const pieces = new Pieces();
    this.#spend(new WordScanner(text, environment, this.options, this.#budget).run(pieces));
    return pieces.words(having);
  }

  #spend({ result }: ProcessedWord): void {
    this.#left -= result.length;
    if (this.#left < 0) throw new DockerfileError('the values of variables are too long');
  }
}

/** Notes the pieces of a text while it is read, and cuts them into words. */
class Pieces {
  readonly #pieces: { readonly text: string; readonly isRaw: boolean }[] = [];

  add(text: string): void {
    this.#pieces.push({ text, isRaw: false });
  }

  /** White space in this one does not end a word. */
  addRaw(text: string): void {
    this.#pieces.push({ text, isRaw: true });
  }

  words(having: string): string[] {
    const words: string[] = [];
    let word = '';
    const end = (): void => {
      if (word !== '') words.push(word);
      word = '';
    };
    for (const { text, isRaw } of this.#pieces) {
      if (isRaw) word += text;
      else {
        for (const [at, part] of (text.includes(having) ? text.split(SPACES) : edgesOf(text)).entries()) {
          if (at > 0) end();
          word += part;
        }
      }
    }
    end();
    return words;
  }
}

/** Returns what is before the first white space of a text and behind the last; all of it when there is none. */
function edgesOf(text: string): string[] {
  const first = SPACES.exec(text);
  if (first === null) return [text];
  let last = text.length;
  while (!isSpace(text[last - 1] ?? ' ')) last--;
  return [text.slice(0, first.index), text.slice(last)];
}

class WordScanner {
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
  ) {}

  run(pieces?: Pieces): ProcessedWord {
    try {
      const result = this.#until(undefined, this.options.keepsEscapes ?? false, pieces);
      return { result, matched: this.#matched, unmatched: this.unmatched };
    } catch (error) {
      if (!(error instanceof DockerfileError)) throw error;
      throw new DockerfileError(`failed to process ${JSON.stringify(this.source)}: ${error.message}`);
    }
  }

  /** The next character, which may be two of JavaScript's. */
  get #next(): string | undefined {
    const char = this.source[this.#at];
    return char === undefined || char < '\uD800' || char > '\uDBFF'
      ? char
      : String.fromCodePoint(this.source.codePointAt(this.#at) ?? 0);
  }

  /** Reads up to the character, which is consumed, or to the end. */
  #until(stop: string | undefined, keepsEscapes: boolean, pieces?: Pieces): string {
    if (++this.#depth > MAX_DEPTH) throw new DockerfileError('syntax error: substitutions are nested too deeply');
    let result = '';
    for (let char = this.#next; char !== undefined; char = this.#next) {
      if (char === stop) {
        this.#at++;
        this.#depth--;
        return result;
      }
      if (char === '$') {
        const value = this.#dollar();
        result += value;
        pieces?.add(value);
      } else if (char === '<' || (!this.options.ignoresQuotes && (char === "'" || char === '"'))) {
        const piece = this.#special(char, keepsEscapes);
        result += piece;
        pieces?.addRaw(piece);
      } else if (char === this.options.escape) {
        this.#at++;
        const escaped = this.#next ?? '';
        this.#at += escaped.length;
        const piece = (keepsEscapes ? char : '') + escaped;
        result += piece;
        pieces?.addRaw(piece);
      } else {
        const text = this.#plain(stop);
        result += text;
        pieces?.add(text);
      }
      if (result.length > MAX_WORD) throw new DockerfileError('the value is too long');
    }
    if (stop !== undefined) throw new DockerfileError(`unexpected end of statement while looking for matching ${stop}`);
    this.#depth--;
    return result;
  }

  /** Takes at least one character, and those after it that mean themselves, too. */
  #plain(stop: string | undefined): string {
    const { source } = this;
    const start = this.#at;
    const stopCode = stop?.charCodeAt(0);
    const escapeCode = this.options.escape.charCodeAt(0);
    let at = start + 1;
    for (; at < source.length; at++) {
      const code = source.charCodeAt(at);
      if (code === DOLLAR || code === LESS || code === SINGLE || code === DOUBLE) break;
      if (code === stopCode || code === escapeCode) break;
    }
    this.#at = at;
    return source.slice(start, at);
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
    return this.source.slice(start, this.#at);
  }

  #singleQuoted(): string {
    const end = this.source.indexOf("'", this.#at + 1);
    if (end < 0) {
      this.#at = this.source.length;
      throw new DockerfileError('unexpected end of statement while looking for matching single-quote');
    }
    const inner = this.source.slice(this.#at + 1, end);
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
        this.#at += char.length;
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
      return this.#until(stop, keepsEscapes);
    } catch (error) {
      if (error instanceof DockerfileError && this.#next === undefined)
        throw new DockerfileError(`syntax error: missing ${missing}`);
      throw error;
    }
  }

  #take(): string {
    const char = this.#next;
    this.#at += char?.length ?? 1;
    return char ?? '\uFFFD';
  }

  #name(): string {
    const start = this.#at;
    const first = this.#next;
    if (first === undefined) return '';
    if ('@*#?-$!'.includes(first)) this.#at++;
    else {
      const belongs = isDigit(first) ? isDigit : isNameCharacter;
      for (let next: string | undefined = first; next !== undefined && belongs(next); next = this.#next)
        this.#at += next.length;
    }
    return this.source.slice(start, this.#at);
  }

  #value(name: string): string | undefined {
    const value = this.environment.get(name);
    (value === undefined ? this.unmatched : this.#matched).add(name);
    this.#made += value?.length ?? 0;
    if (this.#made > MAX_WORD * 4) throw new DockerfileError('the value is too long');
    return value;
  }
}

function badSubstitution(): Error {
  return new DockerfileError('syntax error: bad substitution');
}

function unsupported(modifier: string): Error {
  return new DockerfileError(`unsupported modifier (${modifier}) in substitution`);
}

/** The answer is that of Go's unicode.IsSpace. */
export function isSpace(char: string): boolean {
  const code = char.charCodeAt(0);
  if (code < 0x80) return char.length === 1 && (code === 0x20 || (code >= 0x09 && code <= 0x0d));
  return /^[\u0085\u00A0\p{White_Space}]$/u.test(char);
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
