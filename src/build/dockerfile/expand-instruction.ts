/** Replaces the variables of an instruction, in those of its values that have any. */
import type { Instruction, KeyValue } from './ast.js';
import { parseMount } from './run-flags.js';
import { type Environment, type ProcessedWord, ShellLexer, type UnmatchedObserver } from './shell-lexer.js';

/** Made once for a build, because the lexers limit what all its words cost together. */
export class InstructionExpander {
  readonly #words: ShellLexer;
  readonly #files = new ShellLexer({ escape: '\\', ignoresQuotes: true });

  constructor(escape: '\\' | '`') {
    this.#words = new ShellLexer({ escape });
  }

  /** @throws DockerfileError without lines. */
  matches(text: string, environment: Environment, observer?: UnmatchedObserver): ProcessedWord {
    return this.#words.process(text, environment, observer);
  }

  /**
   * ARG stays as it is: whether its default counts is known by who has the arguments of the build.
   * @param observer hears of variables without a value, once for each word.
   * @throws DockerfileError without lines.
   */
  expand(instruction: Instruction, environment: Environment, observer?: UnmatchedObserver): Instruction {
    const word = (text: string): string => this.#words.process(text, environment, observer).result;
    const pairs = (list: readonly KeyValue[]): KeyValue[] =>
      list.map(({ key, value, isLegacy }) => ({ key: word(key), value: word(value), isLegacy }));
    switch (instruction.kind) {
      case 'ENV':
      case 'LABEL':
        return { ...instruction, pairs: pairs(instruction.pairs) };
      case 'ADD':
      case 'COPY':
        return this.#copied(instruction, environment, word, observer);
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
    observer: UnmatchedObserver | undefined,
  ): T {
    const expanded = {
      ...instruction,
      chown: word(instruction.chown),
      chmod: word(instruction.chmod),
      sources: instruction.sources.map(word),
      destination: word(instruction.destination),
      inlineFiles: instruction.inlineFiles.map((file) => {
        if (!file.expand) return file;
        return { ...file, content: this.#files.process(file.content, environment, observer).result };
      }),
    };
    return expanded.kind === 'ADD' ? { ...expanded, checksum: word(expanded.checksum) } : expanded;
  }
}
