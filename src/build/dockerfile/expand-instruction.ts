/** Replaces the variables of an instruction, in those of its values that have any. */
import type { Instruction, KeyValue } from './ast.js';
import { parseMount } from './run-flags.js';
import { type Environment, ShellLexer } from './shell-lexer.js';

/** Made once for a build, because the lexers limit what all its words cost together. */
export class InstructionExpander {
  readonly #words: ShellLexer;
  readonly #files = new ShellLexer({ escape: '\\', ignoresQuotes: true });

  constructor(escape: '\\' | '`') {
    this.#words = new ShellLexer({ escape });
  }

  /** @throws DockerfileError without lines. */
  word(text: string, environment: Environment): { readonly result: string; readonly unmatched: ReadonlySet<string> } {
    return this.#words.process(text, environment);
  }

  matches(text: string, environment: Environment): ReturnType<ShellLexer['process']> {
    return this.#words.process(text, environment);
  }

  /**
   * ARG stays as it is: whether its default counts is known by who has the arguments of the build.
   * @param unmatched gets the names of variables without a value.
   * @throws DockerfileError without lines.
   */
  expand(instruction: Instruction, environment: Environment, unmatched: Set<string>): Instruction {
    const collect = (processed: { readonly unmatched: ReadonlySet<string> }): void => {
      for (const name of processed.unmatched) unmatched.add(name);
    };
    const word = (text: string): string => {
      const processed = this.#words.process(text, environment);
      collect(processed);
      return processed.result;
    };
    const pairs = (list: readonly KeyValue[]): KeyValue[] =>
      list.map(({ key, value, isLegacy }) => ({ key: word(key), value: word(value), isLegacy }));
    switch (instruction.kind) {
      case 'ENV':
      case 'LABEL':
        return { ...instruction, pairs: pairs(instruction.pairs) };
      case 'ADD':
      case 'COPY':
        return this.#copied(instruction, environment, word, collect);
      case 'RUN':
        return { ...instruction, mounts: instruction.mountTexts.map((text) => parseMount(text, word)) };
      case 'USER':
        return { ...instruction, user: word(instruction.user) };
      case 'WORKDIR':
        return { ...instruction, path: word(instruction.path) };
      case 'VOLUME':
        return { ...instruction, volumes: instruction.volumes.map(word) };
      case 'STOPSIGNAL':
        return { ...instruction, signal: word(instruction.signal) };
      case 'EXPOSE':
        return {
          ...instruction,
          ports: instruction.ports.flatMap((port) => this.#words.process(port, environment).words),
        };
      default:
        return instruction;
    }
  }

  #copied<T extends Extract<Instruction, { kind: 'ADD' | 'COPY' }>>(
    instruction: T,
    environment: Environment,
    word: (text: string) => string,
    collect: (processed: { readonly unmatched: ReadonlySet<string> }) => void,
  ): T {
    const expanded = {
      ...instruction,
      chown: word(instruction.chown),
      chmod: word(instruction.chmod),
      sources: instruction.sources.map(word),
      destination: word(instruction.destination),
      inlineFiles: instruction.inlineFiles.map((file) => {
        if (!file.expand) return file;
        const processed = this.#files.process(file.content, environment);
        collect(processed);
        return { ...file, content: processed.result };
      }),
    };
    return expanded.kind === 'ADD' ? { ...expanded, checksum: word(expanded.checksum) } : expanded;
  }
}
