/** The figures for `system df`: they account for every byte of the data root, by owner. */
import { join } from 'node:path';
import type { Place } from '../../ports/inventory.js';
import type { Digest, LayerStore } from '../../ports/storage.js';
import { driverPath, STORE_PLACES } from '../../storage/drivers/index.js';
import { storePath } from '../../storage/layers/layout.js';
import type { WorkerPool } from '../../workers/pool.js';

export interface DiskUsage {
  /** Bytes of the whole data root, as du(1) counts. */
  readonly totalBytes: number;
  /** Images: layers, configurations, records, and what pulls and loads have under way. */
  readonly imageBytes: number;
  /** The bytes of each layer alone. */
  readonly layers: ReadonlyMap<Digest, number>;
  /** Returns the bytes of a layer and all layers below it. */
  readonly stackBytes: (top: Digest) => number;
  /** The bytes of each container: the files that it wrote, its logs and its record. */
  readonly containers: ReadonlyMap<string, number>;
  readonly volumes: ReadonlyMap<string, number>;
  /** Downloads that can be taken up again. */
  readonly partials: ReadonlyMap<Digest, number>;
  /** The bytes of storage drivers that this daemon does not use, by their names. */
  readonly otherDrivers: ReadonlyMap<string, number>;
  readonly kinds: ReadonlyMap<Place['kind'], { readonly count: number; readonly bytes: number }>;
}

export interface DiskUsageDeps {
  readonly dataRoot: string;
  readonly layers: LayerStore;
  readonly pool: Pick<WorkerPool, 'run'>;
}

const IMAGE_KINDS = new Set<Place['kind']>([
  'layer',
  'layer-record',
  'layer-mark',
  'image',
  'image-record',
  'push-record',
  'partial',
  'pulled-blob',
  'staging',
  'trash',
]);

export class DiskUsages {
  readonly #deps: DiskUsageDeps;
  #measuring: Promise<DiskUsage> | undefined;
  /** Layers that were measured, by path: once a layer is there, nothing changes in its depths. */
  #layers = new Map<string, Place>();

  constructor(deps: DiskUsageDeps) {
    this.#deps = deps;
  }

  /** Measures in a worker thread; calls while that goes on share its result. */
  measure(): Promise<DiskUsage> {
    this.#measuring ??= this.#measure().finally(() => (this.#measuring = undefined));
    return this.#measuring;
  }

  /** Returns the bytes on the disk of a container: what it wrote, its logs and its record. */
  containerBytes(id: string): Promise<number> {
    const { dataRoot, layers, pool } = this.#deps;
    const places = [storePath(layers.place, 'writable', id), driverPath(layers.place, `containers/${id}`)];
    return pool.run('block-size', {
      paths: places.map((path) => join(dataRoot, path)),
      driver: layers.place,
    });
  }

  /** Returns the bytes on the disk of each layer alone. */
  async layerBytes(chainIds: readonly Digest[]): Promise<ReadonlyMap<Digest, number>> {
    const wanted = new Set(chainIds);
    const names = this.#layerPaths().filter(({ chainId }) => wanted.has(chainId));
    if (names.some(({ path }) => !this.#layers.has(path))) return (await this.measure()).layers;
    return new Map(names.map(({ chainId, path }) => [chainId, this.#layers.get(path)?.bytes ?? 0]));
  }

  async #measure(): Promise<DiskUsage> {
    const { dataRoot, layers, pool } = this.#deps;
    const places = await pool.run('take-inventory', {
      dataRoot,
      stores: STORE_PLACES,
      driver: layers.place,
      known: this.#layers,
    });
    const byPath = new Map(places.map((place) => [place.path, place]));
    const directories = this.#layerPaths().flatMap(({ chainId, path }) => {
      const place = byPath.get(path);
      return place ? [{ chainId, place }] : [];
    });
    this.#layers = new Map(directories.map(({ place }) => [place.path, place]));
    return summary(places, new Map(directories.map(({ chainId, place }) => [chainId, place.bytes])), layers);
  }

  /** Returns where each layer is below the data root. */
  #layerPaths(): { readonly chainId: Digest; readonly path: string }[] {
    const { layers } = this.#deps;
    return layers
      .directories()
      .layers.map(({ chainId, name }) => ({ chainId, path: storePath(layers.place, 'layers', name) }));
  }
}

function summary(places: readonly Place[], layers: ReadonlyMap<Digest, number>, store: LayerStore): DiskUsage {
  const containers = new Map<string, number>();
  const volumes = new Map<string, number>();
  const partials = new Map<Digest, number>();
  const kinds = new Map<Place['kind'], { count: number; bytes: number }>();
  /** Directories at the top of the data root that hold images. */
  const tops = new Set([store.place, 'image']);
  const otherDrivers = new Map<string, number>();
  let totalBytes = 0;
  let imageBytes = 0;
  for (const { path, kind, owner, bytes } of places) {
    totalBytes += bytes;
    const sum = kinds.get(kind) ?? { count: 0, bytes: 0 };
    kinds.set(kind, { count: sum.count + 1, bytes: sum.bytes + bytes });
    if (kind === 'foreign') otherDrivers.set(owner, (otherDrivers.get(owner) ?? 0) + bytes);
    if (kind === 'container' || kind === 'writable') containers.set(owner, (containers.get(owner) ?? 0) + bytes);
    else if (kind === 'volume') volumes.set(owner, bytes);
    else if (IMAGE_KINDS.has(kind) || (kind === 'directory' && tops.has(path.split('/', 1)[0] ?? '')))
      imageBytes += bytes;
    if (kind === 'partial') {
      // A place has either the bytes of a blob or the record of them (`.json`); both count for its digest.
      const digest: Digest = `sha256:${owner.split('.json', 1)[0] ?? ''}`;
      partials.set(digest, (partials.get(digest) ?? 0) + bytes);
    }
  }
  const stackBytes = (top: Digest): number => {
    let sum = 0;
    for (let layer = store.find(top); layer; layer = layer.parent && store.find(layer.parent))
      sum += layers.get(layer.chainId) ?? 0;
    return sum;
  };
  return { totalBytes, imageBytes, layers, stackBytes, containers, volumes, partials, kinds, otherDrivers };
}
