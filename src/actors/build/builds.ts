/** Builds as the doors see them: start one, hear how it goes, cancel it. Each is an actor. */
import { setTimeout as delay } from 'node:timers/promises';
import { notImplemented, unavailable } from '../../errors/engine-error.js';
import type {
  BuildEngine,
  BuildRequest,
  BuildResult,
  CachePrune,
  CacheUsage,
  RunningBuild,
} from '../../ports/build.js';
import type { BuildCache } from '../../ports/build-cache.js';
import type { Logger } from '../../ports/logger.js';
import { type Collection, createCollection } from '../kit/collection.js';
import type { Replies } from '../kit/replies.js';
import { type BuildMachine, type BuildOutcome, createBuildMachine } from './build.machine.js';
import { ClassicBuild, type ClassicDeps } from './classic-build.js';
import { planClassic } from './classic-plan.js';
import { Solve } from './solve/solve.js';
import type { SolveDeps } from './solve/tools.js';

type Send = (event: Parameters<Collection<BuildMachine>['logic']['transition']>[1]) => void;

/** When the daemon ends, builds may take this long to end. The next start removes what is left of one. */
const CLOSE_MS = 10_000;

export interface BuildsDeps extends ClassicDeps, SolveDeps {
  readonly replies: Replies;
  readonly cache: BuildCache;
  /** Called after each build. */
  readonly onEnd: () => void;
  readonly emitPrune: (attributes: Readonly<Record<string, string>>) => void;
  readonly log: Logger;
}

interface Waiting {
  readonly resolve: (result: BuildResult) => void;
  readonly reject: (error: unknown) => void;
}

export class Builds implements BuildEngine {
  readonly collection: Collection<BuildMachine>;
  readonly #waiting = new Map<string, Waiting>();
  readonly #deps: BuildsDeps;
  #runs = 0;
  #idle: () => void = () => undefined;
  #send: Send = () => undefined;

  constructor(deps: BuildsDeps) {
    this.#deps = deps;
    this.collection = createCollection({
      kind: 'build',
      logic: createBuildMachine({
        classic: (request, signal) => classicBuild(deps, request, signal),
        solve: (request, signal) => new Solve(deps, request, signal),
      }),
      replies: deps.replies,
      onCrash: (id, error) => {
        deps.log.error({ err: error, actor: id }, 'build crashed');
        this.#ended(id, { result: undefined, error });
      },
      onDone: (id, output) => this.#ended(id, output as BuildOutcome),
    });
  }

  /** This must be called when the root actor runs: `send` takes spawn events to it. */
  connect(send: Send): void {
    this.#send = send;
  }

  start(request: BuildRequest): RunningBuild {
    // Clients choose the names of builds, and may use one twice.
    const id = `${request.id}#${++this.#runs}`;
    const result = new Promise<BuildResult>((resolve, reject) => {
      this.#waiting.set(id, { resolve, reject });
      this.#send({ type: 'collection.spawn', id, input: { request, abort: new AbortController() } });
      if (!this.collection.children.has(id))
        this.#ended(id, { result: undefined, error: unavailable('builds are not running', { code: 'NOT_RUNNING' }) });
    });
    return { id: request.id, result, cancel: () => this.#cancel(id) };
  }

  cancel(name: string): void {
    for (const id of this.collection.children.keys()) if (id.slice(0, id.lastIndexOf('#')) === name) this.#cancel(id);
  }

  cacheUsage(): Promise<readonly CacheUsage[]> {
    return this.#deps.cache.usage();
  }

  async pruneCache(selection: CachePrune): ReturnType<BuildEngine['pruneCache']> {
    const result = await this.#deps.cache.prune(selection);
    await this.#deps.layers.reclaimed();
    this.#deps.emitPrune({ reclaimed: String(result.reclaimed) });
    return result;
  }

  /** Cancels all builds; resolves when they have given back what they held, or it takes too long. */
  async close(): Promise<void> {
    const over = new Promise<void>((resolve) => (this.#idle = resolve));
    for (const id of this.collection.children.keys()) this.#cancel(id);
    if (this.#waiting.size === 0) return;
    const timer = new AbortController();
    await Promise.race([over, delay(CLOSE_MS, undefined, { signal: timer.signal }).catch(() => undefined)]);
    timer.abort();
  }

  #cancel(id: string): void {
    if (this.collection.children.has(id)) this.collection.tell(id, { type: 'build.cancel' });
  }

  #ended(id: string, { result, error }: BuildOutcome): void {
    const waiting = this.#waiting.get(id);
    this.#waiting.delete(id);
    if (this.#waiting.size === 0) this.#idle();
    this.#deps.onEnd();
    if (result) waiting?.resolve(result);
    else waiting?.reject(error);
  }
}

async function classicBuild(deps: BuildsDeps, request: BuildRequest, signal: AbortSignal): Promise<BuildResult> {
  if (request.classic?.squash) throw notImplemented('squash is only supported with experimental mode');
  return new ClassicBuild(deps, request, await planClassic(request, signal), signal).run();
}
