/** Replaces the variables of an instruction, in those of its values that have any. */
import type { Parts } from '../../text/turns.js';
import type { Instruction, KeyValue } from './ast.js';
import { DockerfileError } from './dockerfile-error.js';
import { parseMount } from './run-flags.js';
import { type Environment, type ProcessedWord, ShellLexer, type UnmatchedObserver } from './shell-lexer.js';
import { fewWords } from './words.js';

/** Variables that the stages of a build take over from those that they are based on. */
const MAX_INHERITED = 1 << 18;

/** Made once for a build, because it limits what all its words cost together, and what its stages take over. */
export class InstructionExpander {
  #inherited = 0;
  readonly #words: ShellLexer;
  readonly #files = new ShellLexer({ escape: '\\', ignoresQuotes: true });

  constructor(escape: '\\' | '`') {
    this.#words = new ShellLexer({ escape });
  }

  /** Notes that a stage takes over so many variables. @throws DockerfileError without lines when there are too many. */
  inherit(count: number): void {
    this.#inherited += count;
    if (this.#inherited > MAX_INHERITED) throw new DockerfileError('the stages have too many variables');
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
  *expand(instruction: Instruction, environment: Environment, observer?: UnmatchedObserver): Parts<Instruction> {
    const word = (text: string): string => this.#words.process(text, environment, observer).result;
    switch (instruction.kind) {
      case 'ENV':
      case 'LABEL':
        return { ...instruction, pairs: yield* pairs(instruction.pairs, word) };
      case 'ADD':
      case 'COPY':
        return yield* this.#copied(instruction, environment, word, observer);
      case 'RUN':
        return { ...instruction, mounts: yield* each(instruction.mountTexts, (text) => parseMount(text, word)) };
      case 'USER':
        return { ...instruction, user: word(instruction.user) };
      case 'WORKDIR':
        return { ...instruction, path: word(instruction.path) };
      case 'VOLUME':
        return { ...instruction, volumes: yield* each(instruction.volumes, word) };
      case 'STOPSIGNAL':
        return { ...instruction, signal: word(instruction.signal) };
      case 'EXPOSE': {
        const ports = yield* each(instruction.ports, (port) => fewWords(this.#words.words(port, environment)));
        return { ...instruction, ports: fewWords(ports.flat()) };
      }
      default:
        return instruction;
    }
  }

  *#copied<T extends Extract<Instruction, { kind: 'ADD' | 'COPY' }>>(
    instruction: T,
    environment: Environment,
    word: (text: string) => string,
    observer: UnmatchedObserver | undefined,
  ): Parts<T> {
    const expanded = {
      ...instruction,
      chown: word(instruction.chown),
      chmod: word(instruction.chmod),
      sources: yield* each(instruction.sources, word),
      destination: word(instruction.destination),
      inlineFiles: yield* each(instruction.inlineFiles, (file) => {
        if (!file.expand) return file;
        return { ...file, content: this.#files.process(file.content, environment, observer).result };
      }),
    };
    return expanded.kind === 'ADD' ? { ...expanded, checksum: word(expanded.checksum) } : expanded;
  }
}

function* each<From, To>(list: readonly From[], one: (item: From) => To): Parts<To[]> {
  const results: To[] = [];
  for (const item of list) {
    results.push(one(item));
    yield;
  }
  return results;
}

function pairs(list: readonly KeyValue[], word: (text: string) => string): Parts<KeyValue[]> {
  return each(list, ({ key, value, isLegacy }) => ({ key: word(key), value: word(value), isLegacy }));
}
