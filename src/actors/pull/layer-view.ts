/** Readers see the transfer of a layer so: only its newest step. */
import type { Digest } from '../../ports/storage.js';
import type { FetchLayerReport } from '../../workers/fetch-layer.js';
import type { Progress } from '../kit/transfer-link.js';

/** How far a transfer is. A step that the worker reports is shown with the registry that the bytes come from. */
export type LayerView =
  | { readonly type: 'waiting' }
  | ((FetchLayerReport | Progress) & { readonly endpoint: string })
  /** The blob is here, and waits for the layer below before it is extracted. */
  | { readonly type: 'fetched' }
  /** The layer waits for the layer below. */
  | { readonly type: 'extracted' };

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
