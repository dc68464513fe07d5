/** `# syntax=`, `# escape=` and `# check=`: comments that count while nothing else stands before them. */
import type { Directive, Directives } from './ast.js';
import { DockerfileError } from './dockerfile-error.js';

const NAMES = ['syntax', 'escape', 'check'] as const;
type Name = (typeof NAMES)[number];

export const BOM = '\uFEFF';

/** Gets the lines of the file one after the other, up to the first that is no directive. */
export class DirectiveReader {
  readonly #found = new Map<Name, Directive>();
  #line = 0;
  #isDone = false;

  constructor(private readonly mark: '#' | '//' = '#') {}

  /**
   * @param text the line without white space before it.
   * @returns the name when the line is a directive. @throws DockerfileError without lines.
   */
  read(text: string): Name | undefined {
    this.#line++;
    if (this.#isDone) return undefined;
    const pair = text.startsWith(this.mark) ? pairOf(text.slice(this.mark.length)) : undefined;
    const name = NAMES.find((known) => known === pair?.name);
    if (pair === undefined || name === undefined) {
      this.#isDone = true;
      return undefined;
    }
    if (this.#found.has(name)) throw new DockerfileError(`only one ${name} parser directive can be used`);
    this.#found.set(name, { value: pair.value, line: this.#line });
    return name;
  }

  get directives(): Directives {
    return { syntax: this.get('syntax'), escape: this.get('escape'), check: this.get('check') };
  }

  get(name: Name): Directive | undefined {
    return this.#found.get(name);
  }
}

/** `name = value` with white space around both. */
function pairOf(text: string): { readonly name: string; readonly value: string } | undefined {
  const at = text.indexOf('=');
  if (at < 0) return undefined;
  const name = text.slice(0, at).trim();
  const written = text.slice(at + 1).replace(/\r?\n$/, '');
  // White space alone is a value, too: that of one blank.
  const value = written.trim() || written.slice(-1);
  return value !== '' && /^[a-zA-Z][a-zA-Z0-9]*$/.test(name) ? { name: name.toLowerCase(), value } : undefined;
}

/** The frontend that the file asks for, and where it does. */
export interface Syntax extends Directive {
  /** The image, without what follows it on the line. */
  readonly image: string;
}

/**
 * Finds the syntax, also behind `#!`, as `// syntax=` or in JSON. The other directives of a file that is not a
 * Dockerfile are not ours.
 */
export function detectSyntax(source: string): Syntax | undefined {
  const text = source.startsWith(BOM) ? source.slice(1) : source;
  const hasShebang = text.startsWith('#!');
  const newline = text.indexOf('\n');
  const rest = hasShebang ? (newline < 0 ? '' : text.slice(newline + 1)) : text;
  const before = hasShebang ? 1 : 0;
  for (const mark of ['#', '//'] as const) {
    const found = firstSyntax(rest, mark);
    if (found !== undefined) return syntaxOf({ value: found.value, line: found.line + before });
  }
  const json = jsonSyntax(rest);
  return json === undefined ? undefined : syntaxOf({ value: json, line: before });
}

function syntaxOf(directive: Directive): Syntax {
  return { ...directive, image: directive.value.split(' ', 1)[0] ?? '' };
}

function firstSyntax(text: string, mark: '#' | '//'): Directive | undefined {
  const reader = new DirectiveReader(mark);
  try {
    // There are three directives, so more lines than these never are.
    for (const line of text.split('\n', 4)) if (reader.read(line) === undefined) break;
  } catch (error) {
    if (!(error instanceof DockerfileError)) throw error;
  }
  return reader.get('syntax');
}

function jsonSyntax(text: string): string | undefined {
  if (!text.trimStart().startsWith('{')) return undefined;
  try {
    const value: unknown = JSON.parse(text);
    if (typeof value !== 'object' || value === null || !Object.hasOwn(value, 'syntax')) return undefined;
    const { syntax } = value as { readonly syntax: unknown };
    return typeof syntax === 'string' ? syntax : undefined;
  } catch {
    return undefined;
  }
}
