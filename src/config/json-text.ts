/** JSON with the position of every member, so that a message can point at the line that is wrong. */

export interface Position {
  /** The line; the first is 1. */
  readonly line: number;
  /** The column in UTF-16 units; the first is 1. */
  readonly column: number;
}

export interface LocatedJson {
  readonly value: unknown;
  /** Where each member's name begins; paths are joined by dots, array items have their index. */
  readonly positions: ReadonlyMap<string, Position>;
}

export class JsonSyntaxError extends Error {
  constructor(
    message: string,
    readonly position: Position,
  ) {
    super(message);
  }
}

/** No configuration is deeper than this; a parser that goes on would reach the end of the stack. */
const MAX_DEPTH = 64;
const LITERALS: readonly (readonly [string, unknown])[] = [
  ['true', true],
  ['false', false],
  ['null', null],
];

/**
 * Parses RFC 8259 text. A member name that is there twice is an error: which one counts would be a guess.
 * @throws JsonSyntaxError with the position and the text found there.
 */
export function parseJson(text: string): LocatedJson {
  return new Parser(text).parse();
}

class Parser {
  #at = 0;
  readonly #positions = new Map<string, Position>();

  constructor(private readonly text: string) {}

  parse(): LocatedJson {
    const value = this.#value([]);
    this.#space();
    if (this.#at < this.text.length) this.#fail('after the end of the document');
    return { value, positions: this.#positions };
  }

  #value(path: readonly string[]): unknown {
    this.#space();
    if (path.length > MAX_DEPTH) this.#fail('nested too deeply');
    const next = this.text[this.#at];
    if (next === '{') return this.#object(path);
    if (next === '[') return this.#array(path);
    if (next === '"') return this.#string();
    for (const [word, value] of LITERALS) {
      if (!this.text.startsWith(word, this.#at)) continue;
      this.#at += word.length;
      return value;
    }
    const number = /-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+-]?\d+)?/y;
    number.lastIndex = this.#at;
    const match = number.exec(this.text);
    if (!match) return this.#fail('looking for a value');
    this.#at += match[0].length;
    return Number(match[0]);
  }

  #object(path: readonly string[]): Record<string, unknown> {
    const object: Record<string, unknown> = Object.create(null) as Record<string, unknown>;
    this.#at++;
    this.#space();
    if (this.#take('}')) return object;
    for (;;) {
      this.#space();
      const start = this.#at;
      if (this.text[start] !== '"') this.#fail('looking for a member name in double quotes');
      const name = this.#string();
      if (Object.hasOwn(object, name)) {
        this.#at = start;
        this.#fail(`"${name}" is given twice`);
      }
      const inner = [...path, name];
      this.#positions.set(inner.join('.'), this.#position(start));
      this.#space();
      if (!this.#take(':')) this.#fail('looking for ":" after a member name');
      object[name] = this.#value(inner);
      this.#space();
      if (this.#take('}')) return object;
      if (!this.#take(',')) this.#fail('looking for "," or "}" after a member');
    }
  }

  #array(path: readonly string[]): unknown[] {
    const items: unknown[] = [];
    this.#at++;
    this.#space();
    if (this.#take(']')) return items;
    for (;;) {
      this.#space();
      const inner = [...path, String(items.length)];
      this.#positions.set(inner.join('.'), this.#position(this.#at));
      items.push(this.#value(inner));
      this.#space();
      if (this.#take(']')) return items;
      if (!this.#take(',')) this.#fail('looking for "," or "]" after an item');
    }
  }

  #string(): string {
    // oxlint-disable-next-line no-control-regex -- JSON forbids them in strings
    const string = /"(?:[^"\\\u0000-\u001f]|\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4}))*"/y;
    string.lastIndex = this.#at;
    const match = string.exec(this.text);
    if (!match) return this.#fail('in a string');
    this.#at += match[0].length;
    return JSON.parse(match[0]) as string;
  }

  #space(): void {
    while (' \t\r\n'.includes(this.text[this.#at] ?? 'x')) this.#at++;
  }

  #take(character: string): boolean {
    if (this.text[this.#at] !== character) return false;
    this.#at++;
    return true;
  }

  #position(at: number): Position {
    const before = this.text.slice(0, at);
    return { line: before.split('\n').length, column: at - before.lastIndexOf('\n') };
  }

  #fail(what: string): never {
    const line = this.text.slice(this.#at).split('\n')[0]?.trim().slice(0, 40) ?? '';
    const found =
      this.#at >= this.text.length ? 'the end of the file' : line === '' ? 'the end of the line' : JSON.stringify(line);
    throw new JsonSyntaxError(`${what}, found ${found}`, this.#position(this.#at));
  }
}
