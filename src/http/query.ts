/** Query parameters, decoded when they are first asked for, with the value rules of the Engine API. */
import { invalid } from '../errors/engine-error.js';

/** These texts mean false; every other text means true, even `banana`, as with the known engine. */
const FALSE_VALUES: ReadonlySet<string> = new Set(['', '0', 'no', 'false', 'none']);

export class Query {
  readonly #raw: string;
  #values: Map<string, string[]> | undefined;

  /** @param raw the text behind the `?`, still encoded. */
  constructor(raw: string) {
    this.#raw = raw;
  }

  /**
   * Returns true when the parameter is there. All methods throw EngineError invalid when the query is not well encoded,
   * or has a semicolon that is not.
   */
  has(name: string): boolean {
    return this.#parsed().has(name);
  }

  /** Returns the first value, '' when absent. */
  text(name: string): string {
    return this.#parsed().get(name)?.[0] ?? '';
  }

  /** Returns every value of a repeated parameter, in order. */
  all(name: string): readonly string[] {
    return this.#parsed().get(name) ?? [];
  }

  /** Returns a *bool* parameter, false when absent. */
  flag(name: string): boolean {
    return !FALSE_VALUES.has(this.text(name).trim().toLowerCase());
  }

  /** Returns a *bool* parameter whose default counts only when the key is absent: `quiet=` is false. */
  flagOr(name: string, byDefault: boolean): boolean {
    return this.has(name) ? this.flag(name) : byDefault;
  }

  /** Returns a decimal integer, undefined when absent or empty. @throws EngineError invalid for anything else. */
  integer(name: string): number | undefined {
    const text = this.text(name);
    if (text === '') return undefined;
    const value = /^[+-]?\d+$/.test(text) ? Number(text) : Number.NaN;
    if (Number.isSafeInteger(value)) return value;
    const fault = Number.isNaN(value) ? 'invalid syntax' : 'value out of range';
    throw invalid(`invalid ${name}: strconv.Atoi: parsing ${JSON.stringify(text)}: ${fault}`, {
      code: 'QUERY_INTEGER',
    });
  }

  #parsed(): Map<string, string[]> {
    if (this.#values !== undefined) return this.#values;
    const values = new Map<string, string[]>();
    for (const pair of this.#raw.split('&')) {
      if (pair === '') continue;
      // Go, in which authorization plugins are written, drops such a pair: a plugin would not see what a handler does.
      if (pair.includes(';')) throw invalid('invalid semicolon separator in query', { code: 'QUERY_ENCODING' });
      const equals = pair.indexOf('=');
      const name = decode(equals < 0 ? pair : pair.slice(0, equals));
      const value = equals < 0 ? '' : decode(pair.slice(equals + 1));
      const present = values.get(name);
      if (present === undefined) values.set(name, [value]);
      else present.push(value);
    }
    this.#values = values;
    return values;
  }
}

function decode(text: string): string {
  try {
    return decodeURIComponent(text.includes('+') ? text.replaceAll('+', ' ') : text);
  } catch (cause) {
    throw invalid(`invalid URL escape in query: ${JSON.stringify(text)}`, { code: 'QUERY_ENCODING', cause });
  }
}
