/** A layer store of plain directories, for tests of what stands on the port: no mounts, index in memory. */
import { mkdir, readdir, rename, rm } from 'node:fs/promises';
import { join } from 'node:path';
import type { Readable } from 'node:stream';
import { chainId } from '../../src/ports/chain-id.js';
import type {
  Change,
  Digest,
  LayerDirectories,
  LayerInfo,
  LayerStore,
  LayerTar,
  StagedLayer,
} from '../../src/ports/storage.js';

export class DirectoryLayerStore implements LayerStore {
  readonly driver = 'directory';
  readonly place = 'directory';
  prefersWholeBelow = false;
  /** The layer below of each staging, and whether it was in the store. */
  readonly stagings: { readonly parent: Digest | undefined; readonly isWhole: boolean }[] = [];
  readonly #root: string;
  readonly #layers = new Map<Digest, LayerInfo>();
  readonly #references = new Map<Digest, number>();
  #next = 0;
  #staged = 0;

  constructor(root: string) {
    this.#root = root;
  }

  /** Stagings that were neither committed nor discarded. */
  get staged(): number {
    return this.#staged;
  }

  get chainIds(): readonly string[] {
    return [...this.#layers.keys()];
  }

  /** Directory of a committed layer. */
  dirOf(chain: Digest): string {
    return join(this.#root, chain.slice(7));
  }

  async load(): Promise<{ readonly removed: readonly string[] }> {
    await mkdir(this.#root, { recursive: true });
    return { removed: [] };
  }

  async driverStatus(): Promise<[]> {
    return [];
  }

  /** Names in the root, to prove that nothing half made is left. */
  async onDisk(): Promise<string[]> {
    return readdir(this.#root);
  }

  async reclaimed(): Promise<void> {
    // Layers are deleted at once.
  }

  async recorded(): Promise<void> {
    return Promise.resolve();
  }

  find(chain: Digest): LayerInfo | undefined {
    return this.#layers.get(chain);
  }

  async stage(parent?: Digest): Promise<StagedLayer> {
    this.stagings.push({ parent, isWhole: parent === undefined || this.#layers.has(parent) });
    const dir = join(this.#root, `staging-${this.#next++}`);
    const diffDir = join(dir, 'diff');
    await mkdir(diffDir, { recursive: true });
    this.#staged++;
    return {
      diffDir,
      tarSplitPath: join(dir, 'tar-split'),
      commit: async ({ diffId, parent, sizeBytes }) => {
        if (parent !== undefined && !this.#layers.has(parent)) throw new Error(`parent ${parent} is missing`);
        const chain = chainId(parent, diffId);
        this.#staged--;
        if (this.#layers.has(chain)) await rm(dir, { recursive: true });
        else await rename(dir, this.dirOf(chain));
        const info: LayerInfo = { chainId: chain, diffId, parent, sizeBytes };
        this.#layers.set(chain, info);
        return info;
      },
      discard: async () => {
        this.#staged--;
        await rm(dir, { recursive: true, force: true });
      },
    };
  }

  retain(chain: Digest): void {
    if (!this.#layers.has(chain)) throw new Error(`retain of unknown layer ${chain}`);
    this.#references.set(chain, (this.#references.get(chain) ?? 0) + 1);
  }

  async release(chain: Digest): Promise<Digest[]> {
    const count = this.#references.get(chain) ?? 0;
    if (count <= 0) throw new Error(`release of unreferenced layer ${chain}`);
    this.#references.set(chain, count - 1);
    return this.#drop(chain);
  }

  async collect(): Promise<Digest[]> {
    const removed: Digest[] = [];
    for (const chain of this.#layers.keys()) removed.push(...(await this.#drop(chain)));
    return removed;
  }

  async #drop(chain: Digest): Promise<Digest[]> {
    const removed: Digest[] = [];
    let current: Digest | undefined = chain;
    while (
      current !== undefined &&
      (this.#references.get(current) ?? 0) === 0 &&
      ![...this.#layers.values()].some(({ parent }) => parent === current)
    ) {
      const info: LayerInfo | undefined = this.#layers.get(current);
      this.#layers.delete(current);
      this.#references.delete(current);
      await rm(this.dirOf(current), { recursive: true, force: true });
      removed.push(current);
      current = info?.parent;
    }
    return removed;
  }

  chainSize(chain: Digest): number {
    let size = 0;
    for (let layer = this.#layers.get(chain); layer; layer = layer.parent && this.#layers.get(layer.parent))
      size += layer.sizeBytes;
    return size;
  }

  /** A commit adds a layer whose diff ID is made of the container's ID. */
  async commitWritable(id: string): Promise<LayerInfo> {
    const { diffId, parent } = this.#writables.get(id) ?? missing(id);
    const chain = chainId(parent, diffId);
    const info: LayerInfo = { chainId: chain, diffId, parent, sizeBytes: 1 };
    this.#layers.set(chain, info);
    await mkdir(this.dirOf(chain), { recursive: true });
    return info;
  }

  async sealWritable(id: string): Promise<LayerInfo> {
    const layer = await this.commitWritable(id);
    this.#writables.delete(id);
    return layer;
  }

  readonly #writables = new Map<string, { readonly diffId: Digest; readonly parent: Digest | undefined }>();

  async createWritable(id: string, parent: Digest | undefined): Promise<void> {
    this.#writables.set(id, {
      diffId: `sha256:${Buffer.from(id).toString('hex').padEnd(64, '0').slice(0, 64)}`,
      parent,
    });
  }

  createBrief(id: string, parent: Digest | undefined): Promise<void> {
    return this.createWritable(id, parent);
  }

  mapsOf(): undefined {
    return undefined;
  }

  growing(): undefined {
    return undefined;
  }

  async mountImage(): Promise<void> {
    throw new Error('there are no mounts');
  }

  async removeWritable(id: string): Promise<void> {
    this.#writables.delete(id);
  }

  directories(): LayerDirectories {
    return { layers: [], arriving: [], staging: [] };
  }

  writableIds(): string[] {
    return [...this.#writables.keys()];
  }

  tarStream(chain: Digest): Readable {
    return missing(chain);
  }

  openTar(chain: Digest): LayerTar {
    const layer = this.find(chain);
    if (!layer) return missing(chain);
    return {
      diffDir: join(this.dirOf(chain), 'diff'),
      tarSplitPath: join(this.dirOf(chain), 'tar-split'),
      diffId: layer.diffId,
      close: () => undefined,
    };
  }

  async tarSize(chain: Digest): Promise<number> {
    return missing(chain);
  }

  async copyLayer(chain: Digest): Promise<LayerInfo> {
    return missing(chain);
  }

  layerData(): Readonly<Record<string, string>> {
    return {};
  }

  async mount(id: string): Promise<string> {
    return missing(id);
  }

  async unmount(id: string): Promise<void> {
    missing(id);
  }

  rootOf(id: string): string {
    return missing(id);
  }

  graphData(): Readonly<Record<string, string>> {
    return {};
  }

  async changes(): Promise<Change[]> {
    return [];
  }

  async writableSize(): Promise<number> {
    return 0;
  }
}

function missing(id: string): never {
  throw new Error(`the test store cannot do this for ${id}`);
}
