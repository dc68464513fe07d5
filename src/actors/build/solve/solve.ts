/** One build of BuildKit's clients: the parts of its machine that do the work. */
import type { BuildRequest, BuildResult } from '../../../ports/build.js';
import type { Digest } from '../../../ports/storage.js';
import { exportResult } from './exports.js';
import { CacheImports } from './cache-imports.js';
import { cachedSteps } from './cached-steps.js';
import { StepExecutor } from './executor.js';
import { epochOf, imageConfig } from './image-config.js';
import { type BuildPlan, Planner } from './planner.js';
import { Schedule } from './schedule.js';
import type { PlannedStep } from './step.js';
import type { StepResult } from './step-result.js';
import type { StepInput } from './step.machine.js';
import { type SolveDeps, SolveTools } from './tools.js';
import { Vertices } from './vertices.js';

interface Planned {
  readonly plan: BuildPlan;
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
    const planner = new Planner(this.#tools, this.#vertices, this.#signal);
    const both = [this.#whole(planner), CacheImports.load(this.#tools, this.#vertices, this.#signal)] as const;
    // Neither goes on after the other's failure is told.
    await Promise.allSettled(both);
    const [plan, imports] = await Promise.all(both);
    const schedule = new Schedule(plan.target.last);
    for (const step of schedule.steps) this.#vertices.announce(step);
    this.#planned = { plan, schedule, imports };
  }

  /** A plan that fails ends what it has begun, so that nothing is taken after the build has closed. */
  async #whole(planner: Planner): Promise<BuildPlan> {
    try {
      const plan = await planner.plan();
      this.#signal.throwIfAborted();
      return plan;
    } catch (error) {
      this.abort(error);
      await planner.settled();
      throw error;
    }
  }

  /** Returns the steps that can begin. */
  next(): readonly StepInput[] {
    const { schedule } = this.#parts();
    return schedule.take().map((step) => {
      const { parent, sources } = step;
      const work = {
        tools: this.#tools,
        step,
        parent: parent && schedule.resultOf(parent),
        sources: sources.map((source) => schedule.resultOf(source)),
        signal: this.#signal,
      };
      return { executor: this.#executor, work };
    });
  }

  complete(digest: string, result: StepResult): void {
    this.#parts().schedule.complete(digest, result);
  }

  /** Cancels what runs. */
  abort(reason: unknown): void {
    this.#abort.abort(reason);
  }

  async export(): Promise<BuildResult> {
    const { plan, schedule } = this.#parts();
    const { target, platform, unusedArgs } = plan;
    const topLayer = target.last && schedule.resultOf(target.last).layer;
    const config = imageConfig(target, schedule, this.deps.layers, topLayer, this.#tools.request);
    const baseLayers = target.last === undefined ? 0 : this.#baseLayers(target.last);
    const result = { platform, config, topLayer, baseLayers };
    const imageId = await exportResult(this.#tools, this.#vertices, result, this.#signal);
    await this.#exportCaches(schedule, topLayer);
    return { platforms: [result], imageId, unusedArgs, release: this.#held(topLayer) };
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

  async #exportCaches(schedule: Schedule, top: Digest | undefined): Promise<void> {
    const { request } = this.#tools;
    const epoch = epochOf(request);
    for (const { mode, take } of request.cacheTo) {
      this.#signal.throwIfAborted();
      await take(cachedSteps(schedule, this.deps.layers, { mode, top, ...(epoch !== undefined && { epoch }) }));
    }
  }

  /** Holds the files of the result beyond the end of the build. */
  #held(topLayer: Digest | undefined): () => Promise<void> {
    const { layers } = this.deps;
    let held = topLayer;
    if (held !== undefined) layers.retain(held);
    return async () => {
      const layer = held;
      held = undefined;
      if (layer !== undefined) await layers.release(layer);
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
