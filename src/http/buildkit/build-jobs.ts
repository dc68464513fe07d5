/**
 * The builds that clients have begun. A client's calls for one build come on any connection and in any order: each
 * waits a while for those that it needs.
 */
import { EngineError, internal } from '../../errors/engine-error.js';
import type { BuildMaterial } from '../../ports/build.js';
import type { SolveRequest } from './proto/gen/control_pb.js';
import type { Status } from './proto/gen/common_pb.js';
import { ForeignStatus } from './grpc-status.js';
import type { ProgressLog } from './progress-log.js';

/** More builds at once are refused. */
const MAX_JOBS = 1_000;

/** Made once: each build ends with it, and a new error costs a look at the stack. */
const GIVEN_UP = new EngineError('cancelled', 'context canceled');

/** The answer that a build gives to its client. */
export interface JobOutcome {
  readonly exporterResponse: Readonly<Record<string, string>>;
  /** Configuration of the image that was made. */
  readonly config?: Buffer;
  /** Tells what it was made of, for those who ask: all steps are looked through for it. */
  readonly materials?: () => readonly BuildMaterial[];
}

/** One call of Solve, from its begin to its answer. */
export class BuildJob {
  readonly ref: string;
  readonly request: SolveRequest;
  readonly progress: ProgressLog;
  readonly startedMs = Date.now();
  /** Aborted when the client gives the build up, and at its end. */
  readonly signal: AbortSignal;
  /** The solution; a frontend in the client may ask for several, of which the last one counts. */
  outcome: Promise<JobOutcome> | undefined;
  readonly #aborter = new AbortController();
  readonly #returned: PromiseWithResolvers<void>;

  constructor(request: SolveRequest, progress: ProgressLog) {
    this.ref = request.ref;
    this.request = request;
    this.progress = progress;
    this.signal = this.#aborter.signal;
    this.#returned = withResolvers();
    this.#returned.promise.catch(() => undefined);
  }

  cancel(): void {
    this.#aborter.abort(GIVEN_UP);
    this.#returned.reject(GIVEN_UP);
  }

  /** The client's frontend has ended, with this error if there is one. Returns whether it has failed. */
  return(error: Status | undefined): boolean {
    const hasFailed = error !== undefined && (error.code !== 0 || error.message !== '');
    if (hasFailed) this.#returned.reject(new ForeignStatus(error));
    else this.#returned.resolve();
    return hasFailed;
  }

  /** Resolves when the client's frontend has ended. @throws its error, or cancelled. */
  get returned(): Promise<void> {
    return this.#returned.promise;
  }
}

export class BuildJobs {
  readonly #jobs = new Map<string, BuildJob>();
  readonly #waiting = new Map<string, Set<(job: BuildJob) => void>>();
  readonly #prepared = new Set<string>();

  /** Does what comes before the begin of a build: calls that belong to it wait for as long as that takes. */
  async preparing<T>(ref: string, prepare: () => Promise<T>): Promise<T> {
    this.#prepared.add(ref);
    try {
      return await prepare();
    } finally {
      this.#prepared.delete(ref);
    }
  }

  /** @throws EngineError conflict for a build that is under way, unavailable when there are too many. */
  begin(request: SolveRequest, progress: ProgressLog): BuildJob {
    if (this.#jobs.has(request.ref)) throw internal(`job ID ${request.ref} exists`);
    if (this.#jobs.size >= MAX_JOBS) throw new EngineError('unavailable', 'there are too many builds');
    const job = new BuildJob(request, progress);
    this.#jobs.set(job.ref, job);
    for (const found of this.#waiting.get(job.ref) ?? []) found(job);
    this.#waiting.delete(job.ref);
    return job;
  }

  end(job: BuildJob): void {
    if (this.#jobs.get(job.ref) === job) this.#jobs.delete(job.ref);
  }

  get(ref: string): BuildJob | undefined {
    return this.#jobs.get(ref);
  }

  list(): BuildJob[] {
    return [...this.#jobs.values()];
  }

  /**
   * Resolves with a build, which may begin a moment later; undefined when the caller has left, or when the time is up
   * and nobody prepares it.
   */
  async wait(ref: string, timeoutMs: number, signal: AbortSignal): Promise<BuildJob | undefined> {
    const present = this.#jobs.get(ref);
    if (present !== undefined) return present;
    const waiting = this.#waiting.get(ref) ?? new Set();
    this.#waiting.set(ref, waiting);
    return new Promise((resolve) => {
      const done = (job?: BuildJob): void => {
        clearTimeout(timer);
        signal.removeEventListener('abort', leave);
        waiting.delete(done);
        if (waiting.size === 0 && this.#waiting.get(ref) === waiting) this.#waiting.delete(ref);
        resolve(job);
      };
      const leave = (): void => done();
      const late = (): void => {
        if (this.#prepared.has(ref)) timer = setTimeout(late, timeoutMs);
        else leave();
      };
      let timer = setTimeout(late, timeoutMs);
      waiting.add(done);
      signal.addEventListener('abort', leave, { once: true });
      if (signal.aborted) leave();
    });
  }

  cancelAll(): void {
    for (const job of this.#jobs.values()) job.cancel();
  }
}

interface PromiseWithResolvers<T> {
  readonly promise: Promise<T>;
  resolve(value: T): void;
  reject(error: unknown): void;
}

function withResolvers<T>(): PromiseWithResolvers<T> {
  let resolve: (value: T) => void = () => undefined;
  let reject: (error: unknown) => void = () => undefined;
  const promise = new Promise<T>((yes, no) => {
    resolve = yes;
    reject = no;
  });
  return { promise, resolve, reject };
}
