/**
 * Finds what the stages of a Dockerfile are made of: images, contexts and each other. Only the stages that the target
 * needs are built.
 */
import { type Parts, whole } from '../../text/turns.js';
import type { CopyInstruction, Dockerfile, Instruction, LineRange, RunInstruction, Stage } from './ast.js';
import { atLines, DockerfileError } from './dockerfile-error.js';
import { InstructionExpander } from './expand-instruction.js';
import { parseTrigger } from './parse.js';
import { formatPlatform, type Host, parsePlatform, type Platform } from './platform.js';
import { familiarReference, normalizeReference } from './reference.js';
import { type BuildArgs, environmentOf, globalScope, type GlobalScope, platformArgs } from './scope.js';
import { NO_ENVIRONMENT, type ProcessedWord } from './shell-lexer.js';
import { didYouMean } from './suggest.js';

/** Where files come from: of a stage's base, of `--from`. */
export type StageSource =
  | { readonly kind: 'scratch' }
  | { readonly kind: 'stage'; readonly index: number }
  /** The full name, and as it was written, for messages. */
  | { readonly kind: 'image'; readonly name: string; readonly written: string }
  /** The key of the named context. */
  | { readonly kind: 'context'; readonly name: string };

export interface ResolvedStage {
  readonly stage: Stage;
  /** The name for step names; `stage-2` where the Dockerfile gives none, empty when there is just one stage. */
  readonly label: string;
  readonly base: StageSource;
  /** A named context stands for the whole stage: no instruction of it runs. */
  readonly isReplaced: boolean;
  /** That of `--platform`; undefined is the platform of the build. */
  readonly platform: Platform | undefined;
  /** Triggers of the base first, then what the Dockerfile says. */
  readonly instructions: readonly Instruction[];
  /** The sources of COPY (one), and of RUN: one for each mount, undefined where it has no `from`. */
  readonly sources: ReadonlyMap<Instruction, readonly (StageSource | undefined)[]>;
  /** How many of the instructions are triggers. */
  readonly triggers: number;
}

/** Hears what FROM says, for the checks. */
export interface FromObserver {
  base(stage: Stage, unmatched: ReadonlySet<string>, globals: GlobalScope): void;
  platform(stage: Stage, words: ProcessedWord, globals: GlobalScope): void;
}

export interface GraphOptions {
  /** Empty means the last stage. */
  readonly target: string;
  /** The classic builder also takes a number for a target. */
  readonly allowsIndex?: boolean;
  readonly buildArgs: BuildArgs;
  readonly host: Host;
  readonly buildPlatform: Platform;
  readonly targetPlatform: Platform;
  /** Whether a key such as `alpine`, `alpine:3`, `alpine::linux/amd64` names a context. */
  readonly hasContext: (key: string) => boolean;
  readonly observer?: FromObserver;
}

/** The arguments that a build has without any that are given, such as TARGETARCH. */
export function defaultArgs({ stages }: Dockerfile, options: GraphOptions): Map<string, string> {
  const { buildPlatform: build, targetPlatform: target } = options;
  return platformArgs({ build, target }, options.target || (stages.at(-1)?.name ?? ''));
}

interface Step {
  readonly index: number;
  /** The instruction that needs this stage. */
  readonly by: Instruction | undefined;
  readonly next: Iterator<readonly [Instruction, number]>;
}

/** Instructions of the triggers of all stages together: each stage has those of its base anew. */
const MAX_TRIGGERS = 10_000;

type Draft = { -readonly [K in keyof ResolvedStage]: ResolvedStage[K] } & {
  readonly sources: Map<Instruction, readonly (StageSource | undefined)[]>;
};

export class StageGraph {
  #target = 0;
  #triggers = 0;
  readonly #stages: Draft[] = [];
  readonly #byName = new Map<string, number>();

  private constructor(
    private readonly dockerfile: Dockerfile,
    private readonly options: GraphOptions,
    readonly globals: GlobalScope,
    readonly expander: InstructionExpander,
  ) {}

  /** @throws DockerfileError */
  static of(dockerfile: Dockerfile, options: GraphOptions): StageGraph {
    return whole(StageGraph.parts(dockerfile, options));
  }

  /** The same in parts. */
  static *parts(dockerfile: Dockerfile, options: GraphOptions): Parts<StageGraph> {
    const expander = new InstructionExpander(dockerfile.escape);
    const globals = yield* globalScope(dockerfile, defaultArgs(dockerfile, options), options.buildArgs, expander);
    const graph = new StageGraph(dockerfile, options, globals, expander);
    yield* graph.#build();
    return graph;
  }

  *#build(): Parts<void> {
    for (const stage of this.dockerfile.stages) {
      this.#addStage(stage);
      yield;
    }
    this.#target = this.#findTarget();
    for (const stage of this.#stages) {
      for (const instruction of stage.stage.instructions) {
        this.#addSources(stage, instruction);
        yield;
      }
    }
    yield* this.#refuseCycles();
    this.#checkNames();
  }

  /** The index of the stage that is built. */
  get target(): number {
    return this.#target;
  }

  get stages(): readonly ResolvedStage[] {
    return this.#stages;
  }

  /** The indexes of the stages that the target needs, in an order in which they can be built. */
  reachable(from = this.target): number[] {
    const found = new Set<number>();
    const waiting = [from];
    for (let index = waiting.pop(); index !== undefined; index = waiting.pop()) {
      if (found.has(index)) continue;
      found.add(index);
      for (const source of this.#sourcesOf(index)) if (source?.kind === 'stage') waiting.push(source.index);
    }
    return [...found].sort((a, b) => a - b);
  }

  /** The ONBUILD instructions of the stage that this one is based on. Those of an image are in its configuration. */
  stageTriggers(index: number): string[] {
    const base = this.#stages[index]?.base;
    const instructions = base?.kind === 'stage' ? this.#stages[base.index]?.instructions : [];
    return (instructions ?? []).flatMap((instruction) =>
      instruction.kind === 'ONBUILD' ? [instruction.expression] : [],
    );
  }

  /** Throws when a stage takes files from one that comes after it. @param indexes of the stages to look at. */
  refuseForwardReferences(indexes: readonly number[]): void {
    for (const index of indexes) {
      const draft = this.#stages[index];
      for (const [instruction, sources] of draft?.sources ?? []) {
        const at = sources.findIndex((source) => source?.kind === 'stage' && source.index >= index);
        if (at < 0) continue;
        throw new DockerfileError(forwardReference(instruction, at, draft?.label ?? ''), instruction.lines);
      }
    }
  }

  /**
   * Puts the triggers of a base before the instructions of a stage. They may need stages that nothing else needs.
   * @throws DockerfileError
   */
  *addTriggers(index: number, expressions: readonly string[]): Parts<void> {
    const draft = this.#stages[index];
    if (draft === undefined) return;
    const { lines } = draft.stage;
    this.#triggers += expressions.length;
    if (this.#triggers > MAX_TRIGGERS)
      throw new DockerfileError(`the stages have more than ${MAX_TRIGGERS} triggers of what they are based on`, lines);
    const triggers: Instruction[] = [];
    for (const expression of expressions) {
      const trigger = atLines(lines, () => ({ ...withoutLines(() => parseTrigger(expression)), lines }));
      this.#addSources(draft, trigger);
      triggers.push(trigger);
      yield;
    }
    draft.instructions = [...triggers, ...draft.instructions];
    draft.triggers += triggers.length;
    this.#checkNames();
  }

  #sourcesOf(index: number): (StageSource | undefined)[] {
    const draft = this.#stages[index];
    if (draft === undefined) return [];
    return [draft.base, ...[...draft.sources.values()].flat()];
  }

  #addStage(stage: Stage): void {
    const { lines } = stage;
    const environment = environmentOf(this.globals.values);
    const words = atLines(lines, () =>
      this.expander.matches(stage.base, environment, (names) =>
        this.options.observer?.base(stage, names, this.globals),
      ),
    );
    if (words.result === '') throw new DockerfileError(`base name (${stage.base}) should not be blank`, lines);
    const platform = stage.platform === '' ? undefined : this.#platformOf(stage);
    const replacement = stage.name === '' ? undefined : this.#contextKey(stage.name, platform);
    const index = this.#stages.length;
    this.#stages.push({
      stage,
      label: this.dockerfile.stages.length === 1 ? '' : stage.name || `stage-${index}`,
      base:
        replacement === undefined
          ? this.#sourceOf(words.result, lines, platform)
          : { kind: 'context', name: replacement },
      isReplaced: replacement !== undefined,
      platform,
      instructions: stage.instructions,
      sources: new Map(),
      triggers: 0,
    });
    if (stage.name !== '') this.#byName.set(stage.name, index);
  }

  #platformOf(stage: Stage): Platform {
    const { values } = this.globals;
    return atLines(stage.lines, () => {
      let words: ProcessedWord;
      try {
        words = this.expander.matches(stage.platform, environmentOf(values));
      } catch (error) {
        if (!(error instanceof DockerfileError)) throw error;
        throw new DockerfileError(`failed to process arguments for platform : ${error.message}`);
      }
      this.options.observer?.platform(stage, words, this.globals);
      const suggestion = [...words.unmatched].map((name) => didYouMean(name, values.keys(), true)).find(Boolean) ?? '';
      if (words.result === '')
        throw new DockerfileError(`empty platform value from expression ${stage.platform}${suggestion}`);
      try {
        return parsePlatform(words.result, this.options.host);
      } catch (error) {
        if (!(error instanceof DockerfileError)) throw error;
        throw new DockerfileError(`failed to parse platform ${stage.platform}: ${error.message}${suggestion}`);
      }
    });
  }

  /** An earlier stage, nothing, a context, or an image. Names of images are checked when all stages are known. */
  #sourceOf(name: string, lines: LineRange, platform: Platform | undefined): StageSource {
    const index = this.#byName.get(name);
    if (index !== undefined) return { kind: 'stage', index };
    if (name === 'scratch') return { kind: 'scratch' };
    let full: string;
    try {
      full = normalizeReference(name);
    } catch (error) {
      if (!(error instanceof DockerfileError)) throw error;
      this.#badName ??= new DockerfileError(
        `failed to parse stage name ${JSON.stringify(name)}: ${error.message}`,
        lines,
      );
      return { kind: 'scratch' };
    }
    const context = this.#contextKey(full, platform);
    return context === undefined ? { kind: 'image', name: full, written: name } : { kind: 'context', name: context };
  }

  #badName: DockerfileError | undefined;

  #checkNames(): void {
    if (this.#badName !== undefined) throw this.#badName;
  }

  /** A context for the platform goes before one for all. */
  #contextKey(name: string, platform = this.options.targetPlatform): string | undefined {
    const lower = name.toLowerCase();
    if (lower === 'scratch' || lower === 'context') return undefined;
    const key = familiarReference(name).replace(/:latest$/, '');
    const keys = [`${key}::${formatPlatform(platform)}`, key];
    return keys.find((candidate) => this.options.hasContext(candidate));
  }

  #findTarget(): number {
    const { target, allowsIndex } = this.options;
    if (target === '') return this.#stages.length - 1;
    const index = this.#byName.get(target.toLowerCase());
    if (index !== undefined) return index;
    if (allowsIndex && /^\d{1,9}$/.test(target) && Number(target) < this.#stages.length) return Number(target);
    const names = this.#stages.map(({ label, stage }) => label || stage.name || 'stage-0');
    const suggestion = didYouMean(target, names, true);
    throw new DockerfileError(`target stage ${JSON.stringify(target)} could not be found${suggestion}`);
  }

  #addSources(draft: Draft, instruction: Instruction): void {
    if (instruction.kind === 'COPY' && instruction.from !== '')
      draft.sources.set(instruction, [this.#copySource(instruction)]);
    else if (instruction.kind === 'RUN' && instruction.mountFroms.some((from) => from !== '')) {
      const sources = instruction.mountFroms.map((from) =>
        from === '' ? undefined : this.#namedSource(from, instruction.lines),
      );
      draft.sources.set(instruction, sources);
    }
  }

  #copySource({ from, lines }: CopyInstruction): StageSource {
    if (this.expander.matches(from, NO_ENVIRONMENT).result !== from) {
      throw new DockerfileError(
        'variable expansion is not supported for --from, define a new stage with FROM using ARG from global scope ' +
          'as a workaround',
      );
    }
    if (!/^[+-]?\d{1,18}$/.test(from)) return this.#namedSource(from, lines);
    const index = Number(from);
    if (index < 0 || index >= this.#stages.length) throw new DockerfileError(`invalid stage index ${index}`);
    return { kind: 'stage', index };
  }

  #namedSource(from: string, lines: LineRange): StageSource {
    const index = this.#byName.get(from.toLowerCase());
    return index === undefined ? this.#sourceOf(from, lines, undefined) : { kind: 'stage', index };
  }

  /** Only `--from` can make a cycle, since a base comes before. The walk keeps its own stack, for long chains. */
  *#refuseCycles(): Parts<void> {
    const done = new Set<number>();
    for (const start of this.#stages.keys()) {
      const path: Step[] = [];
      const onPath = new Set<number>();
      const enter = (index: number, by?: Instruction): void => {
        done.add(index);
        onPath.add(index);
        path.push({ index, by, next: this.#dependencies(index)[Symbol.iterator]() });
      };
      if (!done.has(start)) enter(start);
      for (let top = path.at(-1); top !== undefined; top = path.at(-1)) {
        yield;
        const { value, done: isEnd } = top.next.next();
        if (isEnd) {
          onPath.delete(top.index);
          path.pop();
          continue;
        }
        const [instruction, index] = value;
        if (onPath.has(index)) {
          const name = this.#stages[start]?.stage.name || `stage-${start}`;
          const [lines, ...others] = [...path.map(({ by }) => by), instruction].flatMap((by) => by?.lines ?? []);
          throw new DockerfileError(`circular dependency detected on stage: ${name}`, lines, others);
        }
        if (!done.has(index)) enter(index, instruction);
      }
    }
  }

  #dependencies(index: number): (readonly [Instruction, number])[] {
    return [...(this.#stages[index]?.sources ?? [])].flatMap(([instruction, sources]) =>
      sources.flatMap((source) => (source?.kind === 'stage' ? [[instruction, source.index] as const] : [])),
    );
  }
}

function forwardReference(instruction: Instruction, at: number, label: string): string {
  if (instruction.kind === 'COPY') {
    const from = JSON.stringify(instruction.from);
    return `cannot copy from stage ${from}, it needs to be defined before current stage ${JSON.stringify(label)}`;
  }
  const { mountFroms, mountTexts } = instruction as RunInstruction;
  const from = JSON.stringify(mountFroms[at] ?? '');
  const target = /(?:^|,)(?:target|dst|destination)=([^,]*)/.exec(mountTexts[at] ?? '')?.[1] ?? '';
  const to = JSON.stringify(target);
  return `cannot mount from stage ${from} to ${to}, stage needs to be defined before current command`;
}

/** The lines of a trigger are not those of this file. */
function withoutLines<T>(part: () => T): T {
  try {
    return part();
  } catch (error) {
    if (error instanceof DockerfileError) throw new DockerfileError(error.message);
    throw error;
  }
}
