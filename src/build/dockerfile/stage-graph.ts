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
import { refuseCycles } from './stage-cycles.js';
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
  /**
   * The classic builder takes names of stages in any case, files from earlier stages only, and says what is wrong with
   * a FROM or a COPY when it comes to it.
   */
  readonly isClassic?: boolean;
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
  readonly #failures = new Map<Stage | Instruction, DockerfileError>();

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
        this.#later(instruction, () => this.#addSources(stage, instruction));
        yield;
      }
    }
    yield* refuseCycles(this.#stages);
    this.#checkNames();
  }

  /** Returns what is wrong with a stage or an instruction that the classic builder has come to. */
  failureOf(part: Stage | Instruction): DockerfileError | undefined {
    return this.#failures.get(part);
  }

  /** Does a part; the classic builder is told of its failure later. @throws DockerfileError for others. */
  #later<T>(part: Stage | Instruction, work: () => T): T | undefined {
    try {
      return work();
    } catch (error) {
      if (this.options.isClassic !== true || !(error instanceof DockerfileError)) throw error;
      this.#failures.set(part, error);
      return undefined;
    }
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
    const index = this.#stages.length;
    const nothing = { base: { kind: 'scratch' }, isReplaced: false, platform: undefined } as const;
    this.#stages.push({
      stage,
      label: this.dockerfile.stages.length === 1 ? '' : stage.name || `stage-${index}`,
      ...(this.#later(stage, () => this.#baseOf(stage)) ?? nothing),
      instructions: stage.instructions,
      sources: new Map(),
      triggers: 0,
    });
    if (stage.name !== '') this.#byName.set(stage.name, index);
  }

  #baseOf(stage: Stage): Pick<ResolvedStage, 'base' | 'isReplaced' | 'platform'> {
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
    if (replacement !== undefined) return { base: { kind: 'context', name: replacement }, isReplaced: true, platform };
    return { base: this.#sourceOf(words.result, lines, platform), isReplaced: false, platform };
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
    const { isClassic } = this.options;
    const index = this.#byName.get(isClassic ? name.toLowerCase() : name);
    if (index !== undefined) return { kind: 'stage', index };
    if (name === 'scratch') return { kind: 'scratch' };
    let full: string;
    try {
      full = normalizeReference(name);
    } catch (error) {
      if (!(error instanceof DockerfileError) || isClassic) throw error;
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
    const { target } = this.options;
    if (target === '') return this.#stages.length - 1;
    const index = this.#byName.get(target.toLowerCase());
    if (index !== undefined) return index;
    const names = this.#stages.map(({ label, stage }) => label || stage.name || 'stage-0');
    const suggestion = didYouMean(target, names, true);
    throw new DockerfileError(`target stage ${JSON.stringify(target)} could not be found${suggestion}`);
  }

  #addSources(draft: Draft, instruction: Instruction): void {
    if (instruction.kind === 'COPY' && instruction.from !== '')
      draft.sources.set(instruction, [this.#copySource(instruction, this.#stages.indexOf(draft))]);
    else if (instruction.kind === 'RUN' && instruction.mountFroms.some((from) => from !== '')) {
      const sources = instruction.mountFroms.map((from) =>
        from === '' ? undefined : this.#namedSource(from, instruction.lines),
      );
      draft.sources.set(instruction, sources);
    }
  }

  #copySource({ from, lines }: CopyInstruction, own: number): StageSource {
    if (this.expander.matches(from, NO_ENVIRONMENT).result !== from) {
      throw new DockerfileError(
        'variable expansion is not supported for --from, define a new stage with FROM using ARG from global scope ' +
          'as a workaround',
      );
    }
    const { isClassic } = this.options;
    if (!/^[+-]?\d{1,18}$/.test(from)) {
      const source = this.#namedSource(from, lines);
      if (!isClassic || source.kind !== 'stage' || source.index < own) return source;
      return { kind: 'image', name: normalizeReference(from), written: from };
    }
    const index = Number(from);
    if (isClassic && (index < 0 || index >= own))
      throw new DockerfileError(`invalid from flag value ${from}: index out of bounds`, lines);
    if (index < 0 || index >= this.#stages.length) throw new DockerfileError(`invalid stage index ${index}`);
    return { kind: 'stage', index };
  }

  #namedSource(from: string, lines: LineRange): StageSource {
    const index = this.#byName.get(from.toLowerCase());
    return index === undefined ? this.#sourceOf(from, lines, undefined) : { kind: 'stage', index };
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
