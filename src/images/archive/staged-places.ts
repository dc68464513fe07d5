/** Stages the layers of an archive: the worker that reads it asks for a place for each. */
import type { LayerStore, StagedLayer } from '../../ports/storage.js';
import { failure } from '../../workers/outcome.js';
import type { ArchiveOrder } from '../../workers/read-archive.js';

export class StagedPlaces {
  readonly #layers: LayerStore;
  readonly #staged = new Map<number, StagedLayer>();
  readonly #making = new Set<Promise<void>>();
  #count = 0;

  constructor(layers: LayerStore) {
    this.#layers = layers;
  }

  /** Stages a layer and tells the worker its place, or why there is none. */
  make(order: (message: ArchiveOrder) => void): void {
    const made: Promise<void> = this.#make(order).finally(() => this.#making.delete(made));
    this.#making.add(made);
  }

  async #make(order: (message: ArchiveOrder) => void): Promise<void> {
    try {
      const layer = await this.#layers.stage();
      const { diffDir, tarSplitPath, idMaps } = layer;
      const index = this.#count++;
      this.#staged.set(index, layer);
      order({ type: 'place', place: { ok: true, value: { index, diffDir, tarSplitPath, idMaps } } });
    } catch (error) {
      order({ type: 'place', place: failure(error) });
    }
  }

  /** Resolves when no place is being made any more. */
  async settled(): Promise<void> {
    await Promise.all(this.#making);
  }

  /** Gives a staged layer to the caller, who commits or discards it. */
  take(index: number): StagedLayer | undefined {
    const layer = this.#staged.get(index);
    this.#staged.delete(index);
    return layer;
  }

  /** Discards the layers that nobody took. */
  async discard(): Promise<void> {
    const rest = [...this.#staged.values()];
    this.#staged.clear();
    await Promise.all(rest.map((layer) => layer.discard()));
  }
}
