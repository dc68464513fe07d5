/**
 * Jobs that any number of clients share, each under a key. A job runs as long as somebody is interested in it:
 *
 *   wanted ──nobody left──► cancelling ──► over
 *      ▲                        │
 *      └─────somebody came──────┘
 *
 * A client that comes while a job is being cancelled waits for its end. It gets the result if the job succeeds after
 * all, else the job is run again. A cancelled run that does not end within a limit is given up, because its effect may
 * be one that never settles: the next client gets a run of its own.
 */
import { cancelled, internal } from '../../errors/engine-error.js';
import { type ActorSummary, shownId } from './describe.js';
import { asEngineError } from './effect.js';
import { runEffect } from './faults.js';

/** One run of a job, as the work sees it. */
export interface JobRun<Result> {
  /** No other run has this name, not even the next one of the same job. */
  readonly name: string;
  /** Aborts when nobody is interested any more. The work cleans up and then rejects. */
  readonly signal: AbortSignal;
  /** Answers the clients that wait, and those that come later, before the work has ended. */
  readonly share: (result: Result) => void;
}

export interface SharedJobsOptions<Input, Result> {
  readonly kind: string;
  readonly run: (input: Input, run: JobRun<Result>) => Promise<Result>;
  /** Called just before a client is answered. */
  readonly onAnswer?: (input: Input) => void;
  /** Called when a run has succeeded and the clients that waited are answered; also after it was given up. */
  readonly onSuccess?: (input: Input) => void;
  /** Called with the name of a run that is given up. */
  readonly onGivenUp?: (name: string) => void;
  /** How long a cancelled run may take to end; tests take less. */
  readonly cancelLimitMs?: number;
}

/** The answer to a client. */
export interface Joined<Result> {
  readonly result: Result;
  /** Gives up the interest. Further calls have no effect. */
  readonly leave: () => void;
}

interface Waiting<Result> {
  answer(result: Result): void;
  reject(error: unknown): void;
}

interface Job<Input, Result> {
  readonly key: string;
  readonly input: Input;
  readonly waiting: Set<Waiting<Result>>;
  /** Number of clients that were answered and have not left. */
  members: number;
  run: Run<Result>;
}

interface Run<Result> {
  readonly name: string;
  readonly abort: AbortController;
  shared?: { readonly result: Result };
  limit?: NodeJS.Timeout;
  hasSucceeded: boolean;
  isGivenUp: boolean;
}

const CANCEL_LIMIT_MS = 5000;

export class SharedJobs<Input, Result> {
  readonly #options: SharedJobsOptions<Input, Result>;
  readonly #jobs = new Map<string, Job<Input, Result>>();
  #runs = 0;

  constructor(options: SharedJobsOptions<Input, Result>) {
    this.#options = options;
  }

  get size(): number {
    return this.#jobs.size;
  }

  /** Joins the job of a key, or begins it. Rejects with the job's error, or with `cancelled` when the signal aborts. */
  join(key: string, input: Input, signal: AbortSignal): Promise<Joined<Result>> {
    return new Promise((resolve, reject) => {
      if (signal.aborted) return reject(cancelled('the client went away'));
      const job = this.#jobs.get(key) ?? this.#add(key, input);
      const settled = (): void => {
        job.waiting.delete(client);
        signal.removeEventListener('abort', onAbort);
      };
      const client: Waiting<Result> = {
        answer: (result) => (settled(), resolve({ result, leave: this.#member(job) })),
        reject: (error) => (settled(), reject(error)),
      };
      const onAbort = (): void => {
        client.reject(cancelled('the client went away'));
        this.#left(job);
      };
      job.waiting.add(client);
      signal.addEventListener('abort', onAbort, { once: true });
      this.#answerShared(job);
    });
  }

  /** Describes the jobs for people who look into a running daemon. */
  describe(): ActorSummary[] {
    return [...this.#jobs.values()].map(({ key, run, waiting }) => ({
      id: shownId(key),
      state: run.abort.signal.aborted ? 'cancelling' : 'wanted',
      effects: [this.#options.kind],
      unanswered: waiting.size,
    }));
  }

  #add(key: string, input: Input): Job<Input, Result> {
    const job: Job<Input, Result> = { key, input, waiting: new Set(), members: 0, run: this.#newRun(key) };
    this.#jobs.set(key, job);
    this.#begin(job);
    return job;
  }

  #newRun(key: string): Run<Result> {
    return { name: `${key}#${++this.#runs}`, abort: new AbortController(), hasSucceeded: false, isGivenUp: false };
  }

  #begin(job: Job<Input, Result>): void {
    const { kind, onSuccess } = this.#options;
    const { input, run } = job;
    runEffect(`shared.${kind}.run`, () => this.#work(job, run)).then(
      (result) => {
        if (!this.#isCurrent(job, run)) return;
        this.#remove(job);
        for (const client of job.waiting) this.#answer(job, client, result);
        onSuccess?.(input);
      },
      (error: unknown) => {
        if (this.#isCurrent(job, run)) this.#failed(job, asEngineError(error));
      },
    );
  }

  async #work(job: Job<Input, Result>, run: Run<Result>): Promise<Result> {
    const { name, abort } = run;
    const share = (result: Result): void => {
      run.shared = { result };
      if (job.run === run) this.#answerShared(job);
    };
    const result = await this.#options.run(job.input, { name, signal: abort.signal, share });
    run.hasSucceeded = true;
    if (run.isGivenUp) this.#options.onSuccess?.(job.input);
    return result;
  }

  /** Leaves out clients that came while the run was being cancelled: it ends, so they do not get what it shared. */
  #answerShared(job: Job<Input, Result>): void {
    const { shared, abort } = job.run;
    if (!shared || abort.signal.aborted) return;
    for (const client of job.waiting) this.#answer(job, client, shared.result);
  }

  #answer(job: Job<Input, Result>, client: Waiting<Result>, result: Result): void {
    this.#options.onAnswer?.(job.input);
    client.answer(result);
  }

  #member(job: Job<Input, Result>): () => void {
    let isIn = true;
    job.members++;
    return () => {
      if (!isIn) return;
      isIn = false;
      job.members--;
      this.#left(job);
    };
  }

  #left(job: Job<Input, Result>): void {
    const { run } = job;
    if (job.members + job.waiting.size > 0 || run.abort.signal.aborted || !this.#isCurrent(job, run)) return;
    run.limit = setTimeout(() => this.#giveUp(job, run), this.#options.cancelLimitMs ?? CANCEL_LIMIT_MS).unref();
    run.abort.abort(cancelled(`the ${this.#options.kind} is not wanted any more`));
  }

  #giveUp(job: Job<Input, Result>, run: Run<Result>): void {
    if (!this.#isCurrent(job, run)) return;
    this.#failed(job, internal(`a cancelled ${this.#options.kind} does not end`, { code: 'JOB_STUCK' }));
    run.isGivenUp = true;
    if (run.hasSucceeded) this.#options.onSuccess?.(job.input);
    this.#options.onGivenUp?.(run.name);
  }

  #failed(job: Job<Input, Result>, error: unknown): void {
    const isWantedAgain = job.run.abort.signal.aborted && job.waiting.size > 0;
    this.#remove(job);
    if (isWantedAgain) {
      job.run = this.#newRun(job.key);
      this.#jobs.set(job.key, job);
      this.#begin(job);
    } else for (const client of job.waiting) client.reject(error);
  }

  #remove(job: Job<Input, Result>): void {
    clearTimeout(job.run.limit);
    this.#jobs.delete(job.key);
  }

  #isCurrent(job: Job<Input, Result>, run: Run<Result>): boolean {
    return job.run === run && this.#jobs.get(job.key) === job;
  }
}
