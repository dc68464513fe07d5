/** Pulls as the rest of the daemon sees them: ask for an image, read how it goes, leave. */
import { createHash } from 'node:crypto';
import { notFound, unavailable } from '../../errors/engine-error.js';
import { canonicalString, familiarString } from '../../images/reference.js';
import type { Logger } from '../../ports/logger.js';
import type { ProgressEncoders } from '../../ports/progress.js';
import { credentialsKey } from '../../registry/credentials.js';
import { formatPlatform } from '../../registry/platform.js';
import { type Collection, createCollection } from '../kit/collection.js';
import { type ActorSummary, describeCollections } from '../kit/describe.js';
import type { Replies } from '../kit/replies.js';
import { type JobRun, SharedJobs } from '../kit/shared-jobs.js';
import type { PullBoards } from './pull-boards.js';
import type { PullWork } from './pull.effects.js';
import { createPullMachine, type PullMachine } from './pull.machine.js';
import type { PullOutcome, PullRequest } from './pull.messages.js';
import type { ProgressForm, PullProgress } from './pull-progress.js';
import { PullSequence, type PullSubscription } from './pull-sequence.js';

type Send = (event: Parameters<Collection<PullMachine>['logic']['transition']>[1]) => void;

export interface PullsDeps {
  readonly replies: Replies;
  readonly log: Logger;
  readonly work: PullWork;
  readonly boards: PullBoards;
  /** Called for every pull that fails or is cancelled. */
  readonly onFailed: (error: unknown) => void;
  readonly encoders: ProgressEncoders;
}

/** A run whose actor has not ended. */
interface ActiveRun {
  readonly run: JobRun<PullProgress>;
  readonly resolve: (progress: PullProgress) => void;
  readonly reject: (error: unknown) => void;
}

export class Pulls {
  readonly collection: Collection<PullMachine>;
  readonly #deps: PullsDeps;
  readonly #jobs: SharedJobs<PullRequest, PullProgress>;
  readonly #runs = new Map<string, ActiveRun>();
  #send: Send = () => undefined;

  constructor(deps: PullsDeps) {
    this.#deps = deps;
    const { work, boards, replies, log } = deps;
    this.#jobs = new SharedJobs({
      kind: 'pull',
      run: (request, run) => this.#run(request, run),
      onGivenUp: (id) => {
        this.#send({ type: 'collection.stop', id });
        this.#lost(id, unavailable('a cancelled pull does not end', { code: 'JOB_STUCK' }));
      },
    });
    this.collection = createCollection({
      kind: 'pull',
      logic: createPullMachine(work, {
        resolved: (job) => this.#runs.get(job.pull.id)?.run.share(boards.progress(job)),
        cancel: (id) => work.cancel(id),
      }),
      replies,
      onCrash: (id, error) => {
        log.error({ err: error, actor: id }, 'pull crashed');
        this.#lost(id, error);
      },
      onDone: (id, output) => this.#ended(id, output as PullOutcome),
    });
  }

  /** This must be called when the root actor runs: `send` takes spawn events to it. */
  connect(send: Send): void {
    this.#send = send;
  }

  /**
   * Joins the pull of a reference or starts it. Resolves when the image is resolved, before the first message; rejects
   * with the EngineError of a pull that could not begin. Aborting, or returning the subscription, gives up the
   * interest; a pull that interests nobody is cancelled.
   */
  async pull(request: PullRequest, signal: AbortSignal, form: ProgressForm = 'classic'): Promise<PullSubscription> {
    const { result, leave } = await this.#jobs.join(jobKey(request), request, signal);
    return result.read(form, leave);
  }

  /**
   * Pulls every tag of a repository, one after the other, as `pull` does. An image that fails after the first byte ends
   * the stream with its error.
   */
  async pullAllTags(
    request: PullRequest,
    signal: AbortSignal,
    form: ProgressForm = 'classic',
  ): Promise<PullSubscription> {
    const { domain, path } = request.reference;
    const tags = await this.#deps.work.listTags(request, signal);
    const [first, ...rest] = tags.map(
      (tag) => () => this.pull({ ...request, reference: { domain, path, tag } }, signal, form),
    );
    if (!first)
      throw notFound(`repository ${familiarString({ domain, path })} has no tags`, { code: 'REPOSITORY_EMPTY' });
    return new PullSequence(await first(), rest, form, this.#deps.encoders);
  }

  /** Describes the pulls for people who look into a running daemon: the clients that wait belong to the job. */
  describe(): readonly ActorSummary[] {
    const { pulls = [] } = describeCollections(this.#deps.replies, { pulls: this.collection.children });
    const waiting = new Map(this.#jobs.describe().map(({ id, unanswered }) => [id, unanswered]));
    return pulls.map((pull) => ({ ...pull, unanswered: waiting.get(pull.id) ?? 0 }));
  }

  /** Runs a job in an actor of its own. Settles when that has ended. */
  #run(request: PullRequest, run: JobRun<PullProgress>): Promise<PullProgress> {
    const id = run.name;
    return new Promise((resolve, reject) => {
      this.#runs.set(id, { run, resolve, reject });
      this.#send({ type: 'collection.spawn', id, input: { ...request, id } });
      if (!this.collection.children.has(id)) this.#ended(id, { error: notRunning() });
      run.signal.addEventListener('abort', () => this.collection.tell(id, { type: 'pull.cancel' }), { once: true });
    });
  }

  #ended(id: string, { error }: PullOutcome): void {
    const { work, boards, log, onFailed } = this.#deps;
    const active = this.#runs.get(id);
    this.#runs.delete(id);
    const progress = boards.close(id, error);
    if (error === undefined && progress) return active?.resolve(progress);
    active?.reject(error);
    onFailed(error);
    work
      .abandon(id)
      .catch((failure: unknown) => log.error({ err: failure, pull: id }, 'layers of a pull that failed are kept'));
  }

  /** Ends a run whose actor has gone in the middle of something. */
  #lost(id: string, error: unknown): void {
    this.#deps.work.cancel(id);
    this.#ended(id, { error });
  }
}

function notRunning(): Error {
  return unavailable('pulls are not running', { code: 'NOT_RUNNING' });
}

/**
 * Returns the key of a job, which equal requests share. Credentials are part of it, so that nobody reads what only
 * another may.
 */
function jobKey({ reference, platform, credentials }: PullRequest): string {
  const parts = [canonicalString(reference), platform ? formatPlatform(platform) : '', credentialsKey(credentials)];
  const hash = createHash('sha256').update(JSON.stringify(parts)).digest('hex').slice(0, 16);
  return `pull.${familiarString(reference)}.${hash}`;
}
