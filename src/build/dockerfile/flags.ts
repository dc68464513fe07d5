/** The flags of instructions, such as `--chown=1:1`. */
import { DockerfileError } from './dockerfile-error.js';
import { didYouMean } from './suggest.js';

export type FlagKind = 'bool' | 'text' | 'texts';

export class Flags {
  readonly #values = new Map<string, string[]>();

  /**
   * @param written the flags with their dashes. @param known in the order in which a wrong one is compared with them.
   * @throws DockerfileError without lines.
   */
  constructor(written: readonly string[], known: ReadonlyMap<string, FlagKind> = new Map()) {
    for (const text of written) this.#add(text, known);
  }

  get names(): string[] {
    return [...this.#values.keys()];
  }

  has(name: string): boolean {
    return this.#values.has(name);
  }

  text(name: string): string {
    return this.#values.get(name)?.at(-1) ?? '';
  }

  texts(name: string): string[] {
    return this.#values.get(name) ?? [];
  }

  isTrue(name: string): boolean {
    return this.text(name) === 'true';
  }

  /** undefined: the flag is not there. */
  choice(name: string): boolean | undefined {
    return this.has(name) ? this.isTrue(name) : undefined;
  }

  #add(text: string, known: ReadonlyMap<string, FlagKind>): void {
    const sign = text.indexOf('=');
    const flag = sign < 0 ? text : text.slice(0, sign);
    const value = sign < 0 ? undefined : text.slice(sign + 1);
    const name = flag.slice(2);
    const kind = known.get(name);
    if (kind === undefined) throw new DockerfileError(`unknown flag: ${flag}${didYouMean(name, known.keys(), true)}`);
    const before = this.#values.get(name) ?? [];
    if (before.length > 0 && kind !== 'texts') throw new DockerfileError(`duplicate flag specified: ${flag}`);
    if (value === undefined ? kind !== 'bool' : kind === 'bool' && value === '')
      throw new DockerfileError(`missing a value on flag: ${flag}`);
    before.push(kind === 'bool' ? boolOf(flag, value ?? 'true') : (value ?? ''));
    this.#values.set(name, before);
  }
}

function boolOf(flag: string, value: string): string {
  const lower = value.toLowerCase();
  if (lower === 'true' || lower === 'false') return lower;
  throw new DockerfileError(`expecting boolean value for flag ${flag}, not: ${value}`);
}
