/** One build of BuildKit's clients: the parts of its machine that do the work. */
import { setImmediate as nextLoop } from 'node:timers/promises';
import { readDockerfile } from '../../../build/dockerfile/parse.js';
import { isOfIndex } from '../../../images/platform.js';
import type { BuildRequest, BuildResult, PlatformResult } from '../../../ports/build.js';
import type { Digest } from '../../../ports/storage.js';
import { inTurns, turn } from '../../../text/turns.js';
import { targetPlatforms } from '../target-platform.js';
import { exportResults, severalPlatforms } from './exports.js';
import { CacheImports } from './cache-imports.js';
import { cachedSteps } from './cached-steps.js';
import { StepExecutor } from './executor.js';
import { epochOf, imageConfig } from './image-config.js';
import { type BuildPlan, Planner } from './planner.js';
import { scannedStatements } from './scanned.js';
import { recipeOf } from './recipe.js';
import { PlanInputs } from './plan-inputs.js';
import { Schedule } from './schedule.js';
import type { PlannedStep, StepWork } from './step.js';
import type { StepResult } from './step-result.js';
import type { StepInput } from './step.machine.js';
import { type SolveDeps, SolveTools } from './tools.js';
import { Vertices } from './vertices.js';

interface Planned {
  /** One for each platform. */
  readonly plans: readonly BuildPlan[];
  readonly unusedArgs: readonly string[];
  readonly schedule: Schedule;
  readonly imports: CacheImports;
}

export class Solve {
  readonly #tools: SolveTools;
  readonly #vertices: Vertices;
  readonly #executor: StepExecutor;
  readonly #abort = new AbortController();
  readonly #signal: AbortSignal;
  #planned: Planned | undefined;

  constructor(
    private readonly deps: SolveDeps,
    request: BuildRequest,
    signal: AbortSignal,
  ) {
    this.#tools = new SolveTools(deps, request);
    this.#vertices = new Vertices(request.observer);
    this.#executor = new StepExecutor(this.#vertices, () => this.#parts().imports);
    this.#signal = AbortSignal.any([signal, this.#abort.signal]);
  }

  /** @throws EngineError, DockerfileError */
  async plan(): Promise<void> {
    const { request } = this.#tools;
    const platforms = targetPlatforms(request);
    const isMulti = platforms.length > 1;
    if (isMulti && request.outputs.some((output) => output.kind === 'image' && output.documents === undefined))
      throw severalPlatforms();
    const dockerfile = await readDockerfile(request.dockerfile, this.#signal);
    const inputs = new PlanInputs(this.#tools, dockerfile, this.#vertices, this.#signal, isMulti);
    const planners: Planner[] = [];
    for (const platform of platforms) planners.push(await Planner.of(inputs, platform));
    const both = [this.#whole(inputs, planners), CacheImports.load(this.#tools, this.#vertices, this.#signal)] as const;
    // Neither goes on after the other's failure is told.
    await Promise.allSettled(both);
    const [plans, imports] = await Promise.all(both);
    const schedule = await inTurns(
      Schedule.parts(plans.flatMap(({ target, scan }) => [target.last, scan])),
      this.#signal,
    );
    const unusedArgs = [...request.buildArgs.keys()].filter((key) => !inputs.usedArgs.has(key));
    for (const step of schedule.steps) {
      await turn();
      if (step.operation.isProcess === true) this.#tools.runsAhead++;
      this.#vertices.announce(step);
    }
    this.#planned = { plans, unusedArgs, schedule, imports };
    if (request.observer.planned === undefined) return;
    request.observer.planned(plans.map(({ platform }) => platform));
    // The answer leaves with the end of this turn, and a cached build has no other turn until it is over.
    await nextLoop();
  }

  /** A plan that fails ends what it has begun, so that nothing is taken after the build has closed. */
  async #whole({ images }: PlanInputs, planners: readonly Planner[]): Promise<readonly BuildPlan[]> {
    const plans = planners.map((planner) => planner.plan());
    try {
      const planned = await Promise.all(plans);
      await planners[0]?.check();
      this.#signal.throwIfAborted();
      return planned;
    } catch (error) {
      this.abort(error);
      await Promise.allSettled(plans);
      await images.settled();
      throw error;
    }
  }

  /**
   * Returns steps that can begin, so many at most. Those that the cache is known to have are done here and now: an
   * actor for each of them would take longer than all else that they need.
   */
  async next(most: number): Promise<readonly StepInput[]> {
    const { schedule } = this.#parts();
    const inputs: StepInput[] = [];
    while (inputs.length < most) {
      const [step] = schedule.take(1);
      if (step === undefined) break;
      this.#signal.throwIfAborted();
      const work = this.#workOf(step);
      const known = await this.#executor.known(work);
      if (known) schedule.complete(step.digest, known);
      else inputs.push({ executor: this.#executor, work });
      await turn();
    }
    return inputs;
  }

  #workOf(step: PlannedStep): StepWork {
    const { schedule } = this.#parts();
    const { parent, sources } = step;
    return {
      tools: this.#tools,
      step,
      parent: parent && schedule.resultOf(parent),
      sources: sources.map((source) => schedule.resultOf(source)),
      signal: this.#signal,
    };
  }

  complete(digest: string, result: StepResult): void {
    this.#parts().schedule.complete(digest, result);
  }

  /** Cancels what runs. */
  abort(reason: unknown): void {
    this.#abort.abort(reason);
  }

  async export(): Promise<BuildResult> {
    const { plans, unusedArgs, schedule } = this.#parts();
    // All steps have run.
    this.#executor.allEnded();
    void this.#tools.shim.end();
    const platforms: PlatformResult[] = [];
    for (const plan of plans) platforms.push(await this.#resultOf(plan));
    const tops = platforms.flatMap(({ topLayer }) => topLayer ?? []);
    const image = await exportResults(this.#tools, this.#vertices, platforms, this.#signal);
    await this.#exportCaches(schedule, tops);
    const isIndex = image !== undefined && isOfIndex(image);
    return { platforms, imageId: image?.id, isIndex, unusedArgs, release: this.#held(tops) };
  }

  async #resultOf({ target, platform, scan }: BuildPlan): Promise<PlatformResult> {
    const { schedule } = this.#parts();
    const topLayer = target.last && schedule.resultOf(target.last).layer;
    const made = imageConfig(target, schedule, this.deps.layers, topLayer, this.#tools.request);
    const config = await inTurns(made, this.#signal);
    const baseLayers = target.last === undefined ? 0 : this.#baseLayers(target.last);
    const scanned = scan ? await scannedStatements(this.#tools, schedule.resultOf(scan), this.#signal) : [];
    return {
      platform,
      config,
      topLayer,
      baseLayers,
      scanned,
      recipe: () => recipeOf(target.last, this.#tools.materials),
    };
  }

  /** Counts the layers of the image that a step stands on. */
  #baseLayers(last: PlannedStep): number {
    let first = last;
    while (first.parent !== undefined) first = first.parent;
    if (first.operation.isImage !== true) return 0;
    let count = 0;
    for (let layer = this.#parts().schedule.resultOf(first).layer; layer !== undefined; count++)
      layer = this.deps.layers.find(layer)?.parent;
    return count;
  }

  async #exportCaches(schedule: Schedule, tops: readonly Digest[]): Promise<void> {
    const { request } = this.#tools;
    const epoch = epochOf(request);
    for (const { mode, take } of request.cacheTo) {
      this.#signal.throwIfAborted();
      await take(cachedSteps(schedule, this.deps.layers, { mode, tops, ...(epoch !== undefined && { epoch }) }));
    }
  }

  /** Holds the files of the results beyond the end of the build. */
  #held(tops: readonly Digest[]): () => Promise<void> {
    const { layers } = this.deps;
    const held = [...tops];
    for (const layer of held) layers.retain(layer);
    return async () => {
      for (const layer of held.splice(0)) await layers.release(layer);
    };
  }

  /** Gives back what the build has held. */
  close(): Promise<void> {
    return this.#tools.close();
  }

  #parts(): Planned {
    if (this.#planned === undefined) throw new Error('the build is not planned');
    return this.#planned;
  }
}
