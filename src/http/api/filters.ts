/** The `filters` query parameter: `{"k":{"v":true}}`, or the older `{"k":["v"]}`. */
import { invalid } from '../../errors/engine-error.js';
import { ownMember } from '../../text/own-member.js';
import { compilePattern, type Pattern, PatternError } from '../../text/pattern.js';
import { WorkBudget } from '../../text/work-budget.js';

const BLANKS: ReadonlySet<string | undefined> = new Set([' ', '\t', '\n', '\r']);

export class Filters {
  readonly #patterns = new Map<string, readonly Pattern[]>();
  readonly #budget = new WorkBudget('invalid filter');

  constructor(private readonly values: ReadonlyMap<string, readonly string[]>) {}

  /** Returns the values of a key, [] when it is absent. */
  get(key: string): readonly string[] {
    return this.values.get(key) ?? [];
  }

  has(key: string): boolean {
    return this.values.has(key);
  }

  keys(): Iterable<string> {
    return this.values.keys();
  }

  get size(): number {
    return this.values.size;
  }

  /** Refuses keys that the endpoint does not know. Throws invalid `invalid filter 'k'`. */
  allow(known: readonly string[]): this {
    for (const key of this.values.keys()) {
      if (!known.includes(key)) throw invalid(`invalid filter '${key}'`, { code: 'INVALID_FILTER' });
    }
    return this;
  }

  /** Returns the one boolean of a key, undefined when it is absent. Throws invalid for anything else. */
  flag(key: string): boolean | undefined {
    if (!this.has(key)) return undefined;
    const values = this.get(key);
    if (values.length === 0) throw invalid(`invalid filter '${key}'`, { code: 'INVALID_FILTER' });
    const truths = values.map((value) =>
      ['1', 'true'].includes(value) ? true : ['0', 'false'].includes(value) ? false : undefined,
    );
    if (truths.some((truth) => truth === undefined || truth !== truths[0]))
      throw invalid(`invalid filter '${key}=[${values.join(' ')}]'`, { code: 'INVALID_FILTER' });
    return truths[0];
  }

  /** Returns true when every `key` or `key=value` of the label filter holds. */
  matchesLabels(labels: Readonly<Record<string, string>> | null | undefined, key = 'label'): boolean {
    return this.get(key).every((wanted) => {
      const equals = wanted.indexOf('=');
      if (equals < 0) return ownMember(labels, wanted) !== undefined;
      return ownMember(labels, wanted.slice(0, equals)) === wanted.slice(equals + 1);
    });
  }

  /**
   * Returns true when the key is absent or one of its values is a regular expression found in, or equal to, the
   * subject. Throws invalid when the patterns of the request take too long.
   */
  matchesPattern(key: string, subject: string): boolean {
    const values = this.get(key);
    return values.length === 0 || values.includes(subject) || this.#patternsOf(key).some((matches) => matches(subject));
  }

  /** Patterns are compiled once for a request, however many objects they are tried on. */
  #patternsOf(key: string): readonly Pattern[] {
    let patterns = this.#patterns.get(key);
    if (patterns === undefined) {
      patterns = this.get(key).flatMap((text) => toPattern(text, this.#budget) ?? []);
      this.#patterns.set(key, patterns);
    }
    return patterns;
  }

  /** Returns true when the key is absent or has exactly this value. */
  matchesExactly(key: string, subject: string): boolean {
    const values = this.get(key);
    return values.length === 0 || values.includes(subject);
  }
}

/** Parses the parameter; '' and absence mean no filters. Throws invalid `invalid filter` for anything malformed. */
export function parseFilters(text: string | undefined): Filters {
  if (text === undefined || text === '') return new Filters(new Map());
  let parsed: unknown;
  try {
    parsed = JSON.parse(withNumberedNames(text));
  } catch (error) {
    throw invalid('invalid filter', { code: 'INVALID_FILTER', cause: error });
  }
  if (parsed === null) return new Filters(new Map());
  if (typeof parsed !== 'object' || Array.isArray(parsed)) throw invalid('invalid filter', { code: 'INVALID_FILTER' });
  const entries = Object.entries(parsed as Record<string, unknown>);
  // All keys have one form, because the known engine decodes the whole as the one or the other. Go takes null for both.
  const isListed = entries.some(([, value]) => Array.isArray(value));
  // A key that is there twice has the last one of its values, of which each must be well formed.
  return new Filters(
    new Map(entries.map(([name, value]) => [unnumbered(name), isListed ? listed(value) : marked(value)])),
  );
}

/** Returns JSON in which no object has two members of one name, of which the parser would drop the first one. */
function withNumberedNames(text: string): string {
  const pieces: string[] = [];
  let behind = 0;
  for (let at = text.indexOf('"'); at >= 0; at = text.indexOf('"', behind)) {
    pieces.push(text.slice(behind, at + 1));
    const from = at + 1;
    behind = from;
    while (behind < text.length && text[behind] !== '"') behind += text[behind] === '\\' ? 2 : 1;
    behind++;
    let next = behind;
    while (BLANKS.has(text[next])) next++;
    if (text[next] === ':') pieces.push(`${pieces.length} `);
    pieces.push(text.slice(from, behind));
  }
  pieces.push(text.slice(behind));
  return pieces.join('');
}

function unnumbered(name: string): string {
  return name.slice(name.indexOf(' ') + 1);
}

function listed(value: unknown): readonly string[] {
  if (value === null) return [];
  if (!Array.isArray(value) || !value.every((item) => typeof item === 'string' || item === null))
    throw invalid('invalid filter', { code: 'INVALID_FILTER' });
  return value.map((item: string | null) => item ?? '');
}

function marked(value: unknown): readonly string[] {
  if (value === null) return [];
  if (typeof value !== 'object' || !Object.values(value).every((mark) => typeof mark === 'boolean' || mark === null))
    throw invalid('invalid filter', { code: 'INVALID_FILTER' });
  return Object.keys(value).map(unnumbered);
}

/** Returns undefined for a text that is no pattern: then only an equal text can match, as in the known engine. */
function toPattern(text: string, budget: WorkBudget): Pattern | undefined {
  try {
    return compilePattern(text, budget);
  } catch (error) {
    if (error instanceof PatternError) return undefined;
    throw error;
  }
}
