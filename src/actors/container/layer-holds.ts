/** The layers that each container keeps from being removed, from its draft until its removal. */
import type { Digest, LayerStore } from '../../ports/storage.js';
import { topLayersOf, type ContainerRecord } from './container.record.js';

export class LayerHolds {
  readonly #layers = new Map<string, readonly Digest[]>();

  constructor(private readonly store: Pick<LayerStore, 'retain' | 'release'>) {}

  retain(record: ContainerRecord): void {
    const layers = topLayersOf(record);
    for (const layer of layers) this.store.retain(layer);
    this.#layers.set(record.id, layers);
  }

  /** Lets go of the layers of a container. Idempotent, because a removal can be begun more than once. */
  async release(id: string): Promise<void> {
    const layers = this.#layers.get(id) ?? [];
    this.#layers.delete(id);
    for (const layer of layers) await this.store.release(layer);
  }
}
