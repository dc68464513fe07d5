/** Pushes as the rest of the daemon sees them: ask for one, read how it goes, leave. */
import { createHash } from 'node:crypto';
import { isEngineError, messageOf, unavailable } from '../../errors/engine-error.js';
import { canonicalName, canonicalString } from '../../images/reference.js';
import type { Logger } from '../../ports/logger.js';
import { credentialsKey } from '../../registry/credentials.js';
import { type Collection, createCollection } from '../kit/collection.js';
import { JobNames } from '../kit/job-names.js';
import type { Replies } from '../kit/replies.js';
import { errorMessage } from '../pull/progress.js';
import { ProgressBoard } from '../pull/progress-board.js';
import type { PushHooks, PushMachine } from './push.machine.js';
import type { JoinedPush, PushCommand, PushInput, PushRequest } from './push.messages.js';

type Send = (event: Parameters<Collection<PushMachine>['logic']['transition']>[1]) => void;

/** Boards of the jobs under way. */
export class PushBoards {
  readonly #boards = new Map<string, ProgressBoard>();

  board({ id, reference }: PushInput): ProgressBoard {
    const existing = this.#boards.get(id);
    if (existing) return existing;
    const board = new ProgressBoard();
    board.say({ status: `The push refers to repository [${canonicalName(reference)}]` });
    this.#boards.set(id, board);
    return board;
  }

  close(id: string, error?: unknown): void {
    const board = this.#boards.get(id);
    this.#boards.delete(id);
    if (error !== undefined) board?.say(errorMessage(messageOf(error)));
    board?.end();
  }
}

export class Pushes {
  readonly collection: Collection<PushMachine>;
  readonly #replies: Replies;
  readonly #jobs = new JobNames();
  #send: Send = () => undefined;

  constructor(replies: Replies, log: Logger, machine: PushMachine, hooks: PushHooks) {
    this.#replies = replies;
    this.collection = createCollection({
      kind: 'push',
      logic: machine,
      replies,
      onCrash: (id, error) => {
        log.error({ err: error, actor: id }, 'push crashed');
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
   * Joins the push of a name or starts it; yields its progress messages as encoded text, the failure as the last one.
   * Aborting, or returning the iterator, gives up the interest; a push that interests nobody is cancelled.
   */
  async push(request: PushRequest, signal: AbortSignal): Promise<AsyncIterableIterator<string>> {
    const id = actorId(request);
    for (let attempt = 1; ; attempt++) {
      if (!this.collection.children.has(id))
        this.#send({ type: 'collection.spawn', id, input: { id: this.#jobs.begin(id), ...request } });
      const actor = this.collection.children.get(id);
      if (!actor) throw unavailable('pushes are not running', { code: 'NOT_RUNNING' });
      try {
        const { interest, board }: JoinedPush = await this.#replies.ask<PushCommand>(
          actor,
          { type: 'push.join' },
          signal,
        );
        return board.read(() => actor.send({ type: 'push.left', interest }));
      } catch (error) {
        // It ended between the look-up and the question.
        if (!isEngineError(error, 'unavailable') || error.code !== 'ACTOR_GONE' || attempt > 1) throw error;
      }
    }
  }
}

function actorId({ reference, credentials }: PushRequest): string {
  return `push.${createHash('sha256')
    .update(JSON.stringify([canonicalString(reference), credentialsKey(credentials)]))
    .digest('hex')
    .slice(0, 16)}`;
}
