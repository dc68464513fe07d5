/** Plans a build: which steps the target needs, what each begins with, and what the image will say. */
import type { Dockerfile, Instruction } from '../../../build/dockerfile/ast.js';
import { partsAtLines } from '../../../build/dockerfile/dockerfile-error.js';
import { formatPlatform, type Platform } from '../../../build/dockerfile/platform.js';
import { StageScope } from '../../../build/dockerfile/scope.js';
import { type ResolvedStage, StageGraph, type StageSource } from '../../../build/dockerfile/stage-graph.js';
import { invalid } from '../../../errors/engine-error.js';
import type { BuildRequest } from '../../../ports/build.js';
import { inTurns, turn } from '../../../text/turns.js';
import { buildHost } from '../build-host.js';
import { basePlatform, type TargetPlatform } from '../target-platform.js';
import { imageStep, type WantedBase } from './base.js';
import { checkBuild } from './checks.js';
import { NamedContexts } from './named-contexts.js';
import { imageHistory, imageState, scratchState, type StagePlan } from './stage-plan.js';
import type { PlanInputs } from './plan-inputs.js';
import { planScan, type ScannableStage } from './scan.js';
import { StagePlanner } from './stage-planner.js';
import type { PlannedStep } from './step.js';
import { isCounted, platformLabel, StepCounter, StepNames } from './step-names.js';

const MAX_PREFETCHED = 100;

export interface BuildPlan {
  readonly target: StagePlan;
  readonly platform: string;
  /** The step whose files tell what is in the target; undefined: nobody asks. */
  readonly scan: PlannedStep | undefined;
}

/** The begin of a stage, before its own instructions. */
interface Begin extends StagePlan {
  readonly triggers: readonly string[];
}

export class Planner {
  readonly #request: BuildRequest;
  readonly #dockerfile: Dockerfile;
  readonly #graph: StageGraph;
  readonly #names: StepNames;
  readonly #contexts: NamedContexts;
  readonly #begins = new Map<number, Begin>();
  readonly #plans = new Map<number, StagePlan>();
  readonly #host = buildHost();
  /** That of images for which the Dockerfile names none; undefined: one that is here may have any. */
  readonly #imagePlatform: TargetPlatform | undefined;

  /** @throws DockerfileError */
  static async of(inputs: PlanInputs, platform: TargetPlatform): Promise<Planner> {
    const { dockerfile, tools, signal } = inputs;
    const { target, buildArgs, namedContexts } = tools.request;
    const host = buildHost();
    const options = {
      target,
      buildArgs,
      host,
      buildPlatform: host,
      targetPlatform: platform,
      hasContext: (key: string) => namedContexts.has(key),
    };
    return new Planner(inputs, platform, await inTurns(StageGraph.parts(dockerfile, options), signal));
  }

  private constructor(
    private readonly inputs: PlanInputs,
    private readonly platform: TargetPlatform,
    graph: StageGraph,
  ) {
    const { tools, dockerfile, isMulti } = inputs;
    const { request } = tools;
    this.#request = request;
    this.#dockerfile = dockerfile;
    // An image that is here under the name may be the one of another platform of this build.
    this.#imagePlatform = isMulti ? platform : basePlatform(platform);
    this.#contexts = new NamedContexts(tools, inputs, platform, this.#imagePlatform);
    this.#graph = graph;
    this.#names = new StepNames(dockerfile.escape);
  }

  /** @throws EngineError, DockerfileError before anything is built. */
  async plan(): Promise<BuildPlan> {
    const graph = this.#graph;
    const reachable = graph.reachable();
    // Each of these goes through all instructions of a stage.
    await turn();
    this.#prefetch(reachable);
    await turn();
    for (const { args } of this.#dockerfile.globalArgs) for (const { key } of args) this.inputs.usedArgs.add(key);
    const waiting = reachable.toReversed();
    for (let index = waiting.at(-1); index !== undefined; index = waiting.at(-1)) {
      const needed = await this.#needed(index);
      if (needed.length > 0) {
        waiting.push(...needed.toReversed());
        continue;
      }
      waiting.pop();
      if (!this.#plans.has(index)) this.#plans.set(index, await this.#planStage(index));
    }
    const target = this.#plans.get(graph.target);
    if (target === undefined) throw invalid('the target is not planned');
    const platform = formatPlatform(this.platform);
    return { target: this.#labelled(target), platform, scan: await this.#scan(platform) };
  }

  /** Returns the step that looks into the target, after all stages are planned. */
  async #scan(platform: string): Promise<PlannedStep | undefined> {
    const { scan } = this.#request;
    if (scan === undefined) return undefined;
    const stages: ScannableStage[] = [];
    for (const [index, { scope, last }] of this.#plans) {
      const stage = this.#graph.stages[index];
      if (stage === undefined) continue;
      const name = stage.stage.name || `stage-${index}`;
      stages.push({ name, scope, last, isTarget: index === this.#graph.target, isFresh: this.#isFresh(stage) });
    }
    // The program runs here, whatever the platform of what it looks into.
    return planScan(this.inputs, scan, { platform, stages, host: this.inputs.isMulti ? this.#host : undefined });
  }

  /** Warns about what the rules of Dockerfiles find. Call it after `plan`, once for all platforms. */
  async check(): Promise<void> {
    const { dockerfile, images } = this.inputs;
    await checkBuild({
      dockerfile,
      request: this.#request,
      host: this.#host,
      platform: this.platform,
      images,
      ignore: await this.inputs.ignore(),
    });
  }

  #sourcesOf(index: number): (StageSource | undefined)[] {
    const stage = this.#graph.stages[index];
    return stage === undefined ? [] : [stage.base, ...[...stage.sources.values()].flat()];
  }

  /** Has images begin to come at once, whichever stage needs them first. Of very many, the others wait for theirs. */
  #prefetch(indexes: readonly number[]): void {
    const wanted = new Map<string, WantedBase>();
    for (const index of indexes) {
      const stage = this.#graph.stages[index];
      for (const source of this.#sourcesOf(index)) {
        if (wanted.size === MAX_PREFETCHED) break;
        if (stage === undefined || source?.kind !== 'image') continue;
        const platform = source === stage.base ? this.#platformOf(stage) : this.#imagePlatform;
        const key = `${source.name} ${platform ? formatPlatform(platform) : ''}`;
        if (!wanted.has(key)) wanted.set(key, { ...source, platform, lines: stage.stage.lines });
      }
    }
    for (const image of wanted.values()) this.inputs.images.load(image).catch(() => undefined);
  }

  /** Returns the stages that must be planned before one: triggers of its base may name new ones. */
  async #needed(index: number): Promise<number[]> {
    if (this.#begins.has(index)) return [];
    const stage = this.#graph.stages[index];
    if (stage === undefined) return [];
    const begin = await this.#begin(stage);
    this.#begins.set(index, begin);
    if (begin.triggers.length > 0 && !stage.isReplaced) {
      await inTurns(this.#graph.addTriggers(index, begin.triggers), this.inputs.signal);
    }
    this.#graph.refuseForwardReferences([index]);
    await turn();
    const sources = this.#sourcesOf(index).flatMap((source) => (source?.kind === 'stage' ? [source.index] : []));
    return sources.filter((source) => !this.#plans.has(source)).sort((a, b) => a - b);
  }

  async #begin(stage: ResolvedStage): Promise<Begin> {
    const { base } = stage;
    const platform = this.#platformOf(stage);
    const { lines } = stage.stage;
    if (base.kind === 'stage') {
      const plan = this.#plans.get(base.index);
      if (plan === undefined) throw invalid('a stage is based on one that is not planned');
      const { config } = plan.state;
      return {
        ...plan,
        state: { ...plan.state, config: { ...config, OnBuild: null }, hasOwnCmd: false },
        triggers: config.OnBuild ?? [],
      };
    }
    if (base.kind === 'scratch')
      return { state: scratchState(this.platform), scope: undefined, last: undefined, history: [], triggers: [] };
    if (base.kind === 'context') {
      const begin = await this.#contexts.base(base.name, this.inputs.images, lines);
      return { ...begin, scope: undefined, triggers: begin.state.config.OnBuild ?? [] };
    }
    const image = await this.inputs.images.load({ ...base, platform, lines });
    const state = imageState(image.config);
    return {
      state: { ...state, config: { ...state.config, OnBuild: null } },
      scope: undefined,
      last: undefined,
      history: imageHistory(image.config),
      triggers: state.config.OnBuild ?? [],
    };
  }

  async #planStage(index: number): Promise<StagePlan> {
    const stage = this.#graph.stages[index];
    const begin = this.#begins.get(index);
    if (stage === undefined || begin === undefined) throw invalid('a stage is planned too early');
    if (stage.isReplaced) return begin;
    await turn();
    const counter = this.#counter(stage);
    const last = stage.base.kind === 'image' ? await this.#imageStep(stage, counter.next()) : begin.last;
    const { budget, signal } = this.inputs;
    const base = { imageEnv: variablesOf(begin.state.config.Env ?? []), stage: begin.scope };
    const made = StageScope.parts(base, this.#graph.globals, this.#request.buildArgs, this.#graph.expander);
    const scope = await inTurns(partsAtLines(stage.stage.lines, made), signal);
    const planner = new StagePlanner({
      request: this.#request,
      names: this.#names,
      counter,
      scope,
      isFresh: this.#isFresh(stage),
      state: begin.state,
      last,
      history: begin.history,
      context: (paths) => this.inputs.main.step(paths),
      usedArgs: this.inputs.usedArgs,
      budget: this.inputs.budget,
    });
    for (const [at, instruction] of stage.instructions.entries()) {
      budget.spend(instruction, scope);
      const sources = await this.#stepsOf(stage, instruction);
      const expanded = await inTurns(scope.next(instruction), signal);
      await inTurns(planner.add(expanded, { sources, isTrigger: at < stage.triggers }), signal);
    }
    return inTurns(planner.plan(), signal);
  }

  #counter(resolved: ResolvedStage): StepCounter {
    const { stage, label, instructions, triggers, base, sources } = resolved;
    const own = instructions.slice(triggers).filter(isCounted).length;
    const hasOthers = [...sources.values()].flat().some((one) => one?.kind === 'image' || one?.kind === 'context');
    // BuildKit counts an image, a context, and what a mount without a source begins with, as a further stage. It calls
    // the only one by no name.
    const hasMounts = instructions.some((one) => one.kind === 'RUN' && one.mountFroms.includes(''));
    const name = label === '' && (hasOthers || hasMounts) ? stage.name || `stage-${stage.index}` : label;
    const where = this.inputs.isMulti ? platformLabel(this.#ownPlatform(resolved), this.platform) : '';
    const shown = [where, name].filter((part) => part !== '').join(' ');
    // A context that a stage is based on counts, too, though its step has a name of its own.
    const isCountedBase = base.kind === 'image' || base.kind === 'context';
    return new StepCounter(shown, own + triggers + (isCountedBase ? 1 : 0));
  }

  /** Returns the platform on which a stage runs: that of its image, which may be the one of an earlier stage. */
  #ownPlatform(stage: ResolvedStage): Platform {
    let at: ResolvedStage | undefined = stage;
    while (at !== undefined && at.platform === undefined && at.base.kind === 'stage')
      at = this.#graph.stages[at.base.index];
    return at?.platform ?? this.platform;
  }

  /** Returns the platform that the image of a stage must have; undefined: one that is here may have any. */
  #platformOf({ platform }: ResolvedStage): Platform | undefined {
    return platform ?? this.#imagePlatform;
  }

  #isFresh({ stage }: ResolvedStage): boolean {
    const { noCache } = this.#request;
    if (noCache === undefined || noCache === 'all') return noCache === 'all';
    return noCache.includes(stage.name || String(stage.index));
  }

  async #imageStep(stage: ResolvedStage, prefix: string): Promise<PlannedStep> {
    const { base } = stage;
    const platform = this.#platformOf(stage);
    const { lines } = stage.stage;
    if (base.kind !== 'image') throw invalid('a stage has no image');
    return imageStep(await this.inputs.images.load({ ...base, platform, lines }), prefix, lines);
  }

  /** Returns the steps whose files an instruction reads; undefined for one without files. */
  async #stepsOf(
    stage: ResolvedStage,
    instruction: Instruction,
  ): Promise<readonly (PlannedStep | 'none' | undefined)[]> {
    const sources = stage.sources.get(instruction) ?? [];
    return Promise.all(sources.map(async (source) => source && this.#stepOf(source, instruction)));
  }

  async #stepOf(source: StageSource, { lines }: Instruction): Promise<PlannedStep | 'none'> {
    switch (source.kind) {
      case 'stage':
        return this.#plans.get(source.index)?.last ?? 'none';
      case 'image':
        return imageStep(await this.inputs.images.load({ ...source, platform: this.#imagePlatform, lines }), '', lines);
      case 'context':
        return (await this.#contexts.files(source.name, this.inputs.images, lines)) ?? 'none';
      default:
        return 'none';
    }
  }

  /** Adds the labels of the request, which no history tells of. */
  #labelled(plan: StagePlan): StagePlan {
    const { labels } = this.#request;
    if (labels.size === 0) return plan;
    const { config } = plan.state;
    const Labels = { ...config.Labels, ...Object.fromEntries(labels) };
    return { ...plan, state: { ...plan.state, config: { ...config, Labels } } };
  }
}

function variablesOf(env: readonly string[]): [string, string][] {
  return env.map((entry) => {
    const at = entry.indexOf('=');
    return at < 0 ? [entry, ''] : [entry.slice(0, at), entry.slice(at + 1)];
  });
}
