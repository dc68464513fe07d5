/** Stages the layers of an archive: the worker that reads it asks for a place for each. */
import { mkdtemp, rm } from 'node:fs/promises';
import { join } from 'node:path';
import type { LayerStore, StagedLayer } from '../../ports/storage.js';
import { failure } from '../../workers/outcome.js';
import type { ArchiveOrder, ArchivePlace } from '../../workers/read-archive.js';

export class StagedPlaces {
  readonly #layers: LayerStore;
  readonly #staged = new Map<number, StagedLayer>();
  readonly #making = new Set<Promise<void>>();
  #count = 0;

  private constructor(
    layers: LayerStore,
    private readonly blobDir: string | undefined,
  ) {
    this.#layers = layers;
  }

  /** @param tmpDir gets the files of layers as they are in the archive; undefined: they are not kept. */
  static async open(layers: LayerStore, tmpDir: string | undefined): Promise<StagedPlaces> {
    return new StagedPlaces(layers, tmpDir === undefined ? undefined : await mkdtemp(join(tmpDir, 'load-')));
  }

  /** Returns the file of a layer as it is in the archive, which may be missing. */
  blobPath(index: number): string | undefined {
    return this.blobDir === undefined ? undefined : join(this.blobDir, String(index));
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
      const value: ArchivePlace = { index, diffDir, tarSplitPath, idMaps, blobPath: this.blobPath(index) };
      order({ type: 'place', place: { ok: true, value } });
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

  /** Discards the layers that nobody took, and the files. */
  async discard(): Promise<void> {
    const rest = [...this.#staged.values()];
    this.#staged.clear();
    await Promise.all(rest.map((layer) => layer.discard()));
    if (this.blobDir !== undefined) await rm(this.blobDir, { recursive: true, force: true });
  }
}
