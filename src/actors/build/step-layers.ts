/** Layers that steps make, held as long as their build needs them. */
import { randomBytes } from 'node:crypto';
import type { Digest, GrowingLayer, LayerContent, LayerInfo, LayerStore } from '../../ports/storage.js';

export class StepLayers {
  readonly #held: Digest[] = [];
  readonly #endings = new Set<Promise<unknown>>();

  constructor(private readonly layers: LayerStore) {}

  hold(chainId: Digest): void {
    this.layers.retain(chainId);
    this.#held.push(chainId);
  }

  /**
   * Makes a layer of what `write` does to the files over `parent`. Nothing is left when it throws.
   * @param write gets what it needs to know the content of the layer in the end, where it can be known.
   */
  async make(
    parent: Digest | undefined,
    write: (rootfs: string, layer: GrowingLayer | undefined) => Promise<LayerContent | undefined>,
  ): Promise<LayerInfo> {
    const id = randomBytes(32).toString('hex');
    await this.layers.createBrief(id, parent, { isBare: false });
    try {
      const rootfs = await this.layers.mount(id);
      let content: LayerContent | undefined;
      try {
        content = await write(rootfs, this.layers.growing(id));
      } finally {
        await this.layers.unmount(id);
      }
      return await this.seal(id, content);
    } finally {
      await this.layers.removeWritable(id);
    }
  }

  /** Makes a layer of a writable one. */
  async commit(id: string): Promise<LayerInfo> {
    const layer = await this.layers.commitWritable(id);
    this.hold(layer.chainId);
    return layer;
  }

  /** Makes a layer of a writable one, which is gone afterwards. */
  async seal(id: string, content?: LayerContent): Promise<LayerInfo> {
    const layer = await this.layers.sealWritable(id, content);
    this.hold(layer.chainId);
    return layer;
  }

  /** Lets something that a step has used be removed while the build goes on. It is gone when the build ends. */
  removeLater(removal: Promise<unknown>): void {
    const ending: Promise<unknown> = removal.catch(() => undefined).finally(() => this.#endings.delete(ending));
    this.#endings.add(ending);
  }

  async release(): Promise<void> {
    await Promise.all(this.#endings);
    for (const chainId of this.#held.splice(0).toReversed()) await this.layers.release(chainId);
  }
}
