/**
 * The table of outstanding asks. An ask settles exactly once: by the actor's reply, by an error, by its client going
 * away, or by the actor's end. Without the table an event sent to a stopped actor would be dropped silently.
 */
import { cancelled, type EngineError, unavailable } from '../../errors/engine-error.js';
import type { ReplyOf, RequestCancelled, RequestId, Unasked } from './commands.js';

/** This error code says that the actor which was asked has ended. */
export const ACTOR_GONE = 'ACTOR_GONE';

/** The table needs only this part of an actor. */
export interface Askable<C> {
  send(event: C | RequestCancelled): void;
  getSnapshot(): { readonly status: string };
}

interface Pending {
  readonly actor: object;
  readonly resolve: (value: unknown) => void;
  readonly reject: (error: unknown) => void;
}

export class Replies {
  #next: RequestId = 1;
  readonly #pending = new Map<RequestId, Pending>();
  readonly #byActor = new WeakMap<object, Set<RequestId>>();

  /** Number of asks that wait for a reply: a metric. */
  get size(): number {
    return this.#pending.size;
  }

  /** This is the number of asks that an actor has not answered. */
  pendingOf(actor: object): number {
    return this.#byActor.get(actor)?.size ?? 0;
  }

  /**
   * Sends a command and resolves with its reply. Rejects with the actor's EngineError, with `cancelled` when `signal`
   * aborts first (the actor then gets `request.cancelled`), and with `unavailable` when the actor has ended.
   */
  ask<C extends { readonly type: string; readonly req: RequestId }>(
    actor: Askable<C>,
    command: Unasked<C>,
    signal?: AbortSignal,
  ): Promise<ReplyOf<C>> {
    return new Promise((resolve, reject) => {
      if (signal?.aborted) return reject(cancelled('the client went away'));
      if (actor.getSnapshot().status !== 'active') return reject(actorGone());
      const req = this.#next++;
      const onAbort = (): void => {
        if (!this.#take(req)) return;
        actor.send({ type: 'request.cancelled', req });
        reject(cancelled('the client went away'));
      };
      const settled = (): void => signal?.removeEventListener('abort', onAbort);
      this.#pending.set(req, {
        actor,
        resolve: (value) => (settled(), resolve(value as ReplyOf<C>)),
        reject: (error) => (settled(), reject(error)),
      });
      let booked = this.#byActor.get(actor);
      if (!booked) this.#byActor.set(actor, (booked = new Set()));
      booked.add(req);
      signal?.addEventListener('abort', onAbort, { once: true });
      actor.send({ ...command, req } as unknown as C);
    });
  }

  /** Settles an ask with its reply. A late reply, after a cancel, is dropped. */
  settle(req: RequestId, value: unknown): void {
    this.#take(req)?.resolve(value);
  }

  /** Settles an ask with an error. */
  reject(req: RequestId, error: unknown): void {
    this.#take(req)?.reject(error);
  }

  /**
   * Leaves an ask to work that its actor has begun: the work settles it in any case, also when the actor ends first,
   * because the outcome is known then as well.
   */
  leaveToWork(req: RequestId): void {
    const pending = this.#pending.get(req);
    if (pending) this.#byActor.get(pending.actor)?.delete(req);
  }

  /** Fails every ask that an ended actor has not answered. */
  actorEnded(actor: object, error: EngineError = actorGone()): void {
    for (const req of this.#byActor.get(actor) ?? []) this.reject(req, error);
  }

  #take(req: RequestId): Pending | undefined {
    const pending = this.#pending.get(req);
    if (!pending) return undefined;
    this.#pending.delete(req);
    this.#byActor.get(pending.actor)?.delete(req);
    return pending;
  }
}

function actorGone(): EngineError {
  return unavailable('the actor that was asked has ended', { code: ACTOR_GONE });
}
