/** Pulls as the rest of the daemon sees them: ask for an image, read how it goes, leave. */
import { createHash } from 'node:crypto';
import type { ActorRefFrom } from 'xstate';
import { isEngineError, messageOf, notFound, unavailable } from '../../errors/engine-error.js';
import { canonicalString, familiarString } from '../../images/reference.js';
import type { Logger } from '../../ports/logger.js';
import { credentialsKey } from '../../registry/credentials.js';
import { formatPlatform } from '../../registry/platform.js';
import { type Collection, createCollection } from '../kit/collection.js';
import { JobNames } from '../kit/job-names.js';
import type { Replies } from '../kit/replies.js';
import { encodeMessage, errorMessage } from './progress.js';
import type { Outcome } from './progress-board.js';
import { type ProgressForm, PullProgress } from './pull-progress.js';
import { errorDetail } from './typed-progress.js';
import type { PullHooks, PullJob, PullMachine } from './pull.machine.js';
import type { Joined, PullCommand, PullRequest } from './pull.messages.js';

type Send = (event: Parameters<Collection<PullMachine>['logic']['transition']>[1]) => void;

/** The progress messages as encoded text; `return` gives up the interest in the pull. */
export interface PullSubscription extends AsyncIterableIterator<string> {
  /** This tells how the pull ended, once it has ended. */
  readonly outcome: Outcome | undefined;
}

type PullActor = ActorRefFrom<PullMachine>;

interface Crowd extends Joined {
  /** Those that have not left. */
  readers: number;
}

export type ListTags = (request: PullRequest, signal: AbortSignal) => Promise<string[]>;

/** Progress of the jobs under way. */
export class PullBoards {
  readonly #jobs = new Map<string, PullProgress>();

  progress(job: PullJob): PullProgress {
    const existing = this.#jobs.get(job.pull.id);
    if (existing) return existing;
    const progress = new PullProgress(job);
    this.#jobs.set(job.pull.id, progress);
    return progress;
  }

  close(id: string, error?: unknown): void {
    const progress = this.#jobs.get(id);
    this.#jobs.delete(id);
    progress?.close(error);
  }
}

export class Pulls {
  readonly collection: Collection<PullMachine>;
  readonly #replies: Replies;
  readonly #listTags: ListTags;
  /** Readers by the job that they share one interest in: to the job, a thousand of them are one. */
  readonly #crowds = new WeakMap<PullActor, Crowd>();
  readonly #jobs = new JobNames();
  #send: Send = () => undefined;

  constructor(replies: Replies, log: Logger, machine: PullMachine, hooks: PullHooks, listTags: ListTags) {
    this.#replies = replies;
    this.#listTags = listTags;
    this.collection = createCollection({
      kind: 'pull',
      logic: machine,
      replies,
      onCrash: (id, error) => {
        log.error({ err: error, actor: id }, 'pull crashed');
        const job = this.#jobs.end(id);
        hooks.cancel(job);
        hooks.close(job, error);
      },
      onDone: (id) => this.#jobs.end(id),
    });
  }

  /** Called once the root actor runs: where spawn events go. */
  connect(send: Send): void {
    this.#send = send;
  }

  /**
   * Joins the pull of a reference or starts it. Resolves when the image is resolved, before the first message; rejects
   * with the EngineError of a pull that could not begin. Aborting, or returning the subscription, gives up the
   * interest; a pull that interests nobody is cancelled.
   */
  async pull(request: PullRequest, signal: AbortSignal, form: ProgressForm = 'classic'): Promise<PullSubscription> {
    const id = actorId(request);
    for (let attempt = 1; ; attempt++) {
      if (!this.collection.children.has(id))
        this.#send({ type: 'collection.spawn', id, input: { id: this.#jobs.begin(id), ...request } });
      const actor = this.collection.children.get(id);
      if (!actor) throw unavailable('pulls are not running', { code: 'NOT_RUNNING' });
      const crowd = this.#crowds.get(actor);
      if (crowd) return this.#read(actor, crowd, form);
      try {
        const joined: Joined = await this.#replies.ask<PullCommand>(actor, { type: 'pull.join' }, signal);
        const first = { ...joined, readers: 0 };
        if (!this.#crowds.has(actor)) this.#crowds.set(actor, first);
        return this.#read(actor, first, form);
      } catch (error) {
        // It ended between the look-up and the question.
        if (!isEngineError(error, 'unavailable') || error.code !== 'ACTOR_GONE' || attempt > 1) throw error;
      }
    }
  }

  #read(actor: PullActor, crowd: Crowd, form: ProgressForm): PullSubscription {
    crowd.readers++;
    return crowd.progress.board(form).read(() => {
      if (--crowd.readers > 0) return;
      if (this.#crowds.get(actor) === crowd) this.#crowds.delete(actor);
      actor.send({ type: 'pull.left', interest: crowd.interest });
    });
  }

  /**
   * Pulls every tag of a repository, one after the other. As `pull`; an image that fails after the first byte ends the
   * stream with its error.
   */
  async pullAllTags(
    request: PullRequest,
    signal: AbortSignal,
    form: ProgressForm = 'classic',
  ): Promise<PullSubscription> {
    const { domain, path } = request.reference;
    const tags = await this.#listTags(request, signal);
    const [first, ...rest] = tags.map(
      (tag) => () => this.pull({ ...request, reference: { domain, path, tag } }, signal, form),
    );
    if (!first)
      throw notFound(`repository ${familiarString({ domain, path })} has no tags`, { code: 'REPOSITORY_EMPTY' });
    return new Sequence(await first(), rest, form);
  }
}

/** Runs one subscription after the other; it stops after the first that fails. */
class Sequence implements PullSubscription {
  #current: PullSubscription;
  readonly #rest: (() => Promise<PullSubscription>)[];
  readonly #form: ProgressForm;
  #isOver = false;
  /** The next subscription could not be opened. */
  #failed = false;

  constructor(first: PullSubscription, rest: readonly (() => Promise<PullSubscription>)[], form: ProgressForm) {
    this.#form = form;
    this.#current = first;
    this.#rest = [...rest];
  }

  get outcome(): Outcome | undefined {
    return this.#failed ? 'failed' : this.#current.outcome;
  }

  async next(): Promise<IteratorResult<string>> {
    for (;;) {
      const step = await this.#current.next();
      if (step.done !== true) return step;
      const open = this.#isOver || this.outcome === 'failed' ? undefined : this.#rest.shift();
      if (!open) return step;
      try {
        this.#current = await open();
      } catch (error) {
        this.#failed = true;
        return {
          done: false,
          value: encodeMessage(
            this.#form === 'typed'
              ? { kind: 'pull', phase: 'failed', error: errorDetail(error) }
              : errorMessage(messageOf(error)),
          ),
        };
      }
      if (this.#isOver) await this.#current.return?.();
    }
  }

  async return(): Promise<IteratorResult<string>> {
    this.#isOver = true;
    await this.#current.return?.();
    return { done: true, value: undefined };
  }

  [Symbol.asyncIterator](): this {
    return this;
  }
}

/** Equal requests share a job; credentials are part of it, so that nobody reads what only another may. */
function actorId({ reference, platform, credentials }: PullRequest): string {
  const parts = [canonicalString(reference), platform ? formatPlatform(platform) : '', credentialsKey(credentials)];
  const hash = createHash('sha256').update(JSON.stringify(parts)).digest('hex').slice(0, 16);
  return `pull.${familiarString(reference)}.${hash}`;
}
