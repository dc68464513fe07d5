/** A container keeps these from its draft until its removal: its layers, and its SELinux labels. */
import type { Digest, LayerStore } from '../../ports/storage.js';
import type { SeLinux } from '../../runtime/selinux/selinux.js';
import { topLayersOf, type ContainerRecord } from './container.record.js';

export class ContainerHolds {
  readonly #layers = new Map<string, readonly Digest[]>();

  /** @param seLinux undefined when containers have no labels. */
  constructor(
    private readonly store: Pick<LayerStore, 'retain' | 'release'>,
    private readonly seLinux: Pick<SeLinux, 'hold' | 'release'> | undefined,
  ) {}

  /** Keeps what a record names, also when it was made by an earlier daemon. */
  retain(record: ContainerRecord): void {
    const layers = topLayersOf(record);
    for (const layer of layers) this.store.retain(layer);
    this.#layers.set(record.id, layers);
    if (record.labels) this.seLinux?.hold(record.id, record.labels);
  }

  /** Lets go of all of it. Idempotent, because a removal can be begun more than once. */
  async release(id: string): Promise<void> {
    this.seLinux?.release(id);
    const layers = this.#layers.get(id) ?? [];
    this.#layers.delete(id);
    for (const layer of layers) await this.store.release(layer);
  }
}
