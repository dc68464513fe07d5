/** Pushes as the rest of the daemon sees them: ask for one, read how it goes, leave. */
import { createHash } from 'node:crypto';
import { messageOf } from '../../errors/engine-error.js';
import type { ProgressEncoders, ProgressFact } from '../../ports/progress.js';
import { canonicalName, canonicalString } from '../../images/reference.js';
import type { Digest } from '../../ports/storage.js';
import { credentialsKey } from '../../registry/credentials.js';
import { formatPlatform } from '../../registry/platform.js';
import type { ActorSummary } from '../kit/describe.js';
import { type JobRun, SharedJobs } from '../kit/shared-jobs.js';
import { ProgressBoard } from '../pull/progress-board.js';
import type { ImageSet } from '../../ports/image-set.js';
import { type CachePush, pushCache } from './push-cache.js';
import { type ImageSetPush, pushImageSet } from './push-image-set.js';
import type { PushWork } from './push.effects.js';
import type { PushRequest } from './push-request.js';

export class Pushes {
  readonly #work: PushWork;
  readonly #jobs = new SharedJobs<PushRequest, ProgressBoard<ProgressFact>>({
    kind: 'push',
    run: (request, run) => this.#run(request, run),
  });

  constructor(
    work: PushWork,
    private readonly encode: ProgressEncoders['classic'],
  ) {
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

  /** Pushes the cache of a build, of which the build itself tells. Resolves with the digest of the manifest. */
  pushCache(push: CachePush, signal: AbortSignal): Promise<Digest> {
    return pushCache(this.#work, push, signal);
  }

  /** Pushes an image that is not in the store. Resolves with its documents. */
  pushImageSet(push: ImageSetPush, signal: AbortSignal): Promise<ImageSet> {
    return pushImageSet(this.#work, push, signal);
  }

  describe(): readonly ActorSummary[] {
    return this.#jobs.describe();
  }

  /** Clients are answered at once, because failures belong to the progress of a push. */
  async #run(
    request: PushRequest,
    { signal, share }: JobRun<ProgressBoard<ProgressFact>>,
  ): Promise<ProgressBoard<ProgressFact>> {
    const board = new ProgressBoard(this.encode);
    board.say({ kind: 'line', text: `The push refers to repository [${canonicalName(request.reference)}]` });
    share(board);
    try {
      await this.#work.push(request, board, signal);
    } catch (error) {
      board.say({ kind: 'failed', message: messageOf(error) });
      throw error;
    } finally {
      board.end();
    }
    return board;
  }
}

function jobKey({ reference, platform, credentials }: PushRequest): string {
  return `push.${createHash('sha256')
    .update(
      JSON.stringify([canonicalString(reference), platform && formatPlatform(platform), credentialsKey(credentials)]),
    )
    .digest('hex')
    .slice(0, 16)}`;
}
