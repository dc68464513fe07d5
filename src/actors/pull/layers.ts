/** The layers that are being transferred: one job per chain ID, whichever pulls want it, and what readers see of it. */
import type { Logger } from '../../ports/logger.js';
import type { Digest, LayerStore } from '../../ports/storage.js';
import type { ActorSummary } from '../kit/describe.js';
import { SharedJobs } from '../kit/shared-jobs.js';
import type { LayerTransfers } from './layer.effects.js';
import type { LayerViews } from './layer-view.js';
import type { LayerInput } from './pull.messages.js';

export class SharedLayers {
  readonly watch: LayerViews['watch'];
  readonly #jobs: SharedJobs<LayerInput, void>;

  constructor(transfers: LayerTransfers, views: LayerViews, layers: LayerStore, log: Logger) {
    this.watch = (chainId, listener) => views.watch(chainId, listener);
    const release = (chainId: Digest): void =>
      void layers
        .release(chainId)
        .catch((error: unknown) => log.error({ err: error, layer: chainId }, 'layer not released'));
    this.#jobs = new SharedJobs({
      kind: 'layer',
      run: (input, { signal }) => transfers.transfer(input, signal).finally(() => views.forget(input.layer.chainId)),
      // Each client gets a reference of its own; the one that the transfer took is given back at the end.
      onAnswer: ({ layer }) => layers.retain(layer.chainId),
      onSuccess: ({ layer }) => release(layer.chainId),
    });
  }

  /** Number of transfers that are under way. */
  get size(): number {
    return this.#jobs.size;
  }

  /**
   * Resolves when the layer is in the store, with a reference that the caller releases. Aborting gives up the interest.
   */
  async join(input: LayerInput, signal: AbortSignal): Promise<void> {
    await this.#jobs.join(input.layer.chainId, input, signal);
  }

  describe(): ActorSummary[] {
    return this.#jobs.describe();
  }
}
