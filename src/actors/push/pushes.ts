/** Pushes as the rest of the daemon sees them: ask for one, read how it goes, leave. */
import { createHash } from 'node:crypto';
import { messageOf } from '../../errors/engine-error.js';
import { canonicalName, canonicalString } from '../../images/reference.js';
import { credentialsKey } from '../../registry/credentials.js';
import type { ActorSummary } from '../kit/describe.js';
import { type JobRun, SharedJobs } from '../kit/shared-jobs.js';
import { errorMessage } from '../pull/progress.js';
import { ProgressBoard } from '../pull/progress-board.js';
import type { PushWork } from './push.effects.js';
import type { PushRequest } from './push-request.js';

export class Pushes {
  readonly #work: PushWork;
  readonly #jobs = new SharedJobs<PushRequest, ProgressBoard>({
    kind: 'push',
    run: (request, run) => this.#run(request, run),
  });

  constructor(work: PushWork) {
    this.#work = work;
  }

  /**
   * Joins the push of a name or starts it; yields its progress messages as encoded text, the failure as the last one.
   * Aborting, or returning the iterator, gives up the interest; a push that interests nobody is cancelled.
   */
  async push(request: PushRequest, signal: AbortSignal): Promise<AsyncIterableIterator<string>> {
    const { result, leave } = await this.#jobs.join(jobKey(request), request, signal);
    return result.read(leave);
  }

  describe(): readonly ActorSummary[] {
    return this.#jobs.describe();
  }

  /** Clients are answered at once, because failures belong to the progress of a push. */
  async #run(request: PushRequest, { signal, share }: JobRun<ProgressBoard>): Promise<ProgressBoard> {
    const board = new ProgressBoard();
    board.say({ status: `The push refers to repository [${canonicalName(request.reference)}]` });
    share(board);
    try {
      await this.#work.push(request, board, signal);
    } catch (error) {
      board.say(errorMessage(messageOf(error)));
      throw error;
    } finally {
      board.end();
    }
    return board;
  }
}

function jobKey({ reference, credentials }: PushRequest): string {
  return `push.${createHash('sha256')
    .update(JSON.stringify([canonicalString(reference), credentialsKey(credentials)]))
    .digest('hex')
    .slice(0, 16)}`;
}
