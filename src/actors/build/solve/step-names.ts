/** The names of steps, such as `[build 2/7] RUN make`. */
import { withoutLogin } from '../../../build/sources/git-url.js';
import type { Instruction } from '../../../build/dockerfile/ast.js';
import { DockerfileError } from '../../../build/dockerfile/dockerfile-error.js';
import { formatPlatform, type Platform } from '../../../build/dockerfile/platform.js';
import { type Environment, ShellLexer } from '../../../build/dockerfile/shell-lexer.js';

/** Returns whether an instruction counts in the names of steps. */
export function isCounted({ kind }: Instruction): boolean {
  return kind === 'RUN' || kind === 'COPY' || kind === 'ADD' || kind === 'WORKDIR';
}

export class StepNames {
  readonly #lexer: ShellLexer;

  constructor(escape: '\\' | '`') {
    this.#lexer = new ShellLexer({ escape, keepsQuotes: true, keepsUnset: true });
  }

  /** Returns an instruction with the values of its variables. @param secrets variables whose values nobody may see. */
  instruction(instruction: Instruction, environment: Environment, secrets: ReadonlySet<string>, summary = ''): string {
    const visible: Environment = { get: (name) => (secrets.has(name) ? '****' : environment.get(name)) };
    const text = instruction.original + summary;
    let shown = text;
    try {
      shown = this.#lexer.process(text, visible).result;
    } catch (error) {
      // A line for a shell need not be one for this lexer.
      if (!(error instanceof DockerfileError)) throw error;
    }
    const { keyword } = instruction;
    if (keyword.toUpperCase() === 'ADD') shown = withoutLogin(shown);
    return shown.startsWith(keyword) ? keyword.toUpperCase() + shown.slice(keyword.length) : shown;
  }
}

/**
 * Returns the platform of a stage as names of steps tell it: `linux/arm64`, or `linux/amd64->arm64` for a stage that
 * runs on the one and is for the other.
 */
export function platformLabel(own: Platform, target: Platform): string {
  const written = formatPlatform(own);
  if (own.os !== target.os) return `${written}->${formatPlatform(target)}`;
  const isSame = own.architecture === target.architecture && own.variant === target.variant;
  return isSame ? written : `${written}->${[target.architecture, target.variant].filter(Boolean).join('/')}`;
}

/** Counts the steps of a stage. */
export class StepCounter {
  #at = 0;

  /**
   * @param label says which stage it is, and for which platform when there are several; empty when there is only one
   * of both.
   * @param total of its steps.
   */
  constructor(
    private readonly label: string,
    private readonly total: number,
  ) {}

  /** Returns what the name of the next step begins with. */
  next(): string {
    const number = String(++this.#at).padStart(String(this.total).length);
    return `[${this.label}${this.label === '' ? '' : ' '}${number}/${this.total}] `;
  }
}
