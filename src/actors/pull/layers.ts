/** The directory of layer transfers: one actor per chain ID, and what readers see of each. */
import { isEngineError, unavailable } from '../../errors/engine-error.js';
import type { Digest } from '../../ports/storage.js';
import type { Logger } from '../../ports/logger.js';
import { type Collection, createCollection } from '../kit/collection.js';
import type { Replies } from '../kit/replies.js';
import type { LayerMachine } from './layer.machine.js';
import type { LayerCommand, LayerInput, LayerView } from './pull.messages.js';

type Send = (event: Parameters<Collection<LayerMachine>['logic']['transition']>[1]) => void;
type Listener = (view: LayerView) => void;

export class LayerViews {
  readonly #views = new Map<Digest, LayerView>();
  readonly #listeners = new Map<Digest, Set<Listener>>();

  publish(chainId: Digest, view: LayerView): void {
    this.#views.set(chainId, view);
    for (const listener of this.#listeners.get(chainId) ?? []) listener(view);
  }

  /** Calls back with the present view, if there is one, and with every later one. */
  watch(chainId: Digest, listener: Listener): () => void {
    const view = this.#views.get(chainId);
    if (view) listener(view);
    let set = this.#listeners.get(chainId);
    if (!set) this.#listeners.set(chainId, (set = new Set()));
    set.add(listener);
    return () => {
      set.delete(listener);
      if (set.size === 0 && this.#listeners.get(chainId) === set) this.#listeners.delete(chainId);
    };
  }

  forget(chainId: Digest): void {
    this.#views.delete(chainId);
  }
}

const ID_PREFIX = 'layer.';

export class LayerDirectory {
  readonly collection: Collection<LayerMachine>;
  readonly #replies: Replies;
  readonly #views: LayerViews;
  #send: Send = () => undefined;

  constructor(
    replies: Replies,
    log: Logger,
    views: LayerViews,
    machine: LayerMachine,
    onCrash: (chainId: Digest) => void,
  ) {
    this.#replies = replies;
    this.#views = views;
    const ended = (id: string): Digest => id.slice(ID_PREFIX.length) as Digest;
    this.collection = createCollection({
      kind: 'layer',
      logic: machine,
      replies,
      onCrash: (id, error) => {
        log.error({ err: error, actor: id }, 'layer transfer crashed');
        onCrash(ended(id));
        views.forget(ended(id));
      },
      onDone: (id) => views.forget(ended(id)),
    });
  }

  /** Called once the root actor runs: where spawn events go. */
  connect(send: Send): void {
    this.#send = send;
  }

  watch(chainId: Digest, listener: Listener): () => void {
    return this.#views.watch(chainId, listener);
  }

  /**
   * Resolves when the layer is in the store, with a reference that the caller releases. Aborting gives up the interest.
   */
  async join(input: LayerInput, signal: AbortSignal): Promise<void> {
    const id = ID_PREFIX + input.layer.chainId;
    for (let attempt = 1; ; attempt++) {
      if (!this.collection.children.has(id)) this.#send({ type: 'collection.spawn', id, input });
      const actor = this.collection.children.get(id);
      if (!actor) throw unavailable('the layer transfers are not running', { code: 'NOT_RUNNING' });
      try {
        return await this.#replies.ask<LayerCommand>(actor, { type: 'layer.join' }, signal);
      } catch (error) {
        // It ended between the look-up and the question.
        if (!isEngineError(error, 'unavailable') || error.code !== 'ACTOR_GONE' || attempt > 1) throw error;
      }
    }
  }
}
