/** Does the work of steps: looks for what they made before, runs them, keeps what they make. */
import { EngineError } from '../../../errors/engine-error.js';
import type { HeldRecord } from '../../../ports/build-cache.js';
import type { Digest } from '../../../ports/storage.js';
import type { CacheImports } from './cache-imports.js';
import { freshKey, passingKey, type StepKeys, stepKeys } from './cache-keys.js';
import { blamed } from './failure.js';
import { inputsOf, type PlannedStep, type StepWork } from './step.js';
import type { StepResult } from './step-result.js';
import type { Vertices } from './vertices.js';

/** The answer of the cache. */
export type LookUp =
  | { readonly kind: 'found'; readonly result: StepResult }
  /** It must run. Nobody else does the same until `release` is called. */
  | { readonly kind: 'missed'; readonly keys: StepKeys | undefined; readonly release: () => void };

const nothing = (): void => undefined;

export class StepExecutor {
  /** Images that the cache has, by the digests of their steps: what is shown of one depends on the steps over it. */
  readonly #images = new Map<string, { readonly step: PlannedStep; isShown: boolean }>();

  /** @param imports resolves before the first step begins. */
  constructor(
    private readonly vertices: Vertices,
    private readonly imports: () => CacheImports,
  ) {}

  started(step: PlannedStep): void {
    this.#showImages(step, true);
    this.vertices.started(step);
  }

  ended(step: PlannedStep, result: StepResult | undefined, error: EngineError | undefined): void {
    const isCached = result?.isCached === true;
    if (error) this.vertices.failed(step, error);
    else if (isCached && step.operation.isImage === true) this.#images.set(step.digest, { step, isShown: false });
    else {
      this.#showImages(step, false);
      this.vertices.done(step, isCached);
    }
  }

  /** Shows the images that no step is over. */
  allEnded(): void {
    for (const { step, isShown } of this.#images.values()) if (!isShown) this.vertices.done(step, true);
    this.#images.clear();
  }

  /**
   * Shows the images that a step needs. BuildKit calls one cached when a step begins with its files, and done when all
   * that is made of it is in the cache.
   */
  #showImages(step: PlannedStep, isUsed: boolean): void {
    for (const { digest } of inputsOf(step)) {
      const image = this.#images.get(digest);
      if (image === undefined || (image.isShown && !isUsed)) continue;
      this.vertices.done(image.step, isUsed);
      image.isShown = true;
      if (isUsed) this.#images.delete(digest);
    }
  }

  /**
   * Returns what the cache has of a step that reads no files: there is nothing to wait for. undefined: the step is to
   * be looked up.
   */
  async known(work: StepWork): Promise<StepResult | undefined> {
    const { step, tools } = work;
    if (step.isFresh || step.sources.length > 0) return undefined;
    const keys = await stepKeys(work);
    const record = keys && (await tools.deps.cache.find(keys.own));
    if (keys === undefined || record === undefined) return undefined;
    const result = this.#resultOf(work, record, keys.portable, true);
    this.ended(step, result, undefined);
    return result;
  }

  /** @throws EngineError with the step and its lines to blame. */
  async lookUp(work: StepWork): Promise<LookUp> {
    const { tools, step, signal } = work;
    return this.#blaming(work, async () => {
      const keys = await stepKeys(work);
      signal.throwIfAborted();
      if (keys === undefined) return { kind: 'missed', keys, release: nothing };
      const release = await tools.deps.claims.take(keys.own, signal);
      try {
        const record = step.isFresh ? undefined : await this.#find(work, keys);
        if (record === undefined) return { kind: 'missed', keys, release };
        release();
        return { kind: 'found', result: this.#resultOf(work, record, keys.portable, true) };
      } catch (error) {
        release();
        throw error;
      }
    });
  }

  /** Waits until the step may run. Resolves with a function that gives its place back. */
  async queue({ tools, step, signal }: StepWork): Promise<() => void> {
    return step.operation.isProcess === true ? tools.deps.processes.take(signal) : nothing;
  }

  /** @throws EngineError with the step and its lines to blame. */
  async perform(work: StepWork, keys: StepKeys | undefined): Promise<StepResult> {
    return this.#blaming(work, async () => {
      const { step, tools } = work;
      if (step.operation.isProcess === true) tools.runsAhead--;
      const { layer, files } = await step.operation.perform(work);
      if (keys !== undefined) {
        const portable = step.isFresh ? freshKey(layer) : keys.portable;
        return this.#resultOf(work, await this.#keep(work, keys.own, layer), portable, false);
      }
      const key = passingKey(step.digest);
      return { layer, files, key, portable: key, records: [], createdAt: Date.now(), isCached: false };
    });
  }

  async #find(work: StepWork, keys: StepKeys): Promise<HeldRecord | undefined> {
    return (await work.tools.deps.cache.find(keys.own)) ?? this.imports().find(work, keys);
  }

  #keep({ tools, step, parent }: StepWork, key: string, layer: Digest | undefined): Promise<HeldRecord> {
    const { layers, cache } = tools.deps;
    const isAdded = step.operation.isImage !== true && layer !== undefined && layer !== parent?.layer;
    return cache.add({
      key,
      parents: parent?.records ?? [],
      type: 'regular',
      description: step.operation.description ?? step.name,
      layer,
      isEmpty: layer === parent?.layer,
      sizeBytes: isAdded ? (layers.find(layer)?.sizeBytes ?? 0) : 0,
    });
  }

  #resultOf({ tools, step }: StepWork, record: HeldRecord, portable: string, isCached: boolean): StepResult {
    tools.hold(record);
    if (isCached && step.operation.isProcess === true) tools.runsAhead--;
    const { layer, key, id, createdAt } = record;
    return { layer, files: undefined, key, portable, records: [id], createdAt, isCached };
  }

  async #blaming<T>({ step, signal }: StepWork, action: () => Promise<T>): Promise<T> {
    try {
      return await action();
    } catch (error) {
      if (signal.aborted) throw new EngineError('cancelled', 'context canceled', { cause: error });
      throw blamed(error, { vertex: step.digest, ...(step.lines && { lines: step.lines }) });
    }
  }
}
