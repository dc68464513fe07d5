/** The running daemon says who may have something below the data root. */
import type { FileImageStore } from '../../images/store.js';
import type { Owners } from '../../inventory/orphans.js';
import type { LayerStore } from '../../ports/storage.js';

export interface PresentOwnersDeps {
  readonly layers: LayerStore;
  readonly images: FileImageStore;
  readonly volumes: { list(): readonly { readonly name: string }[] };
  readonly plugins: { list(): readonly { readonly id: string }[] };
  readonly cache: { ids(): readonly string[] };
  readonly containers: { list(): readonly { readonly id: string }[] };
}

const hex = (digest: string): string => digest.slice('sha256:'.length);

export function presentOwners({ layers, images, volumes, plugins, cache, containers }: PresentOwnersDeps): Owners {
  const { layers: present, arriving, staging } = layers.directories();
  const known = [...present, ...arriving];
  return {
    layers: new Set(known.map(({ name }) => name)),
    chains: new Set(known.map(({ chainId }) => hex(chainId))),
    images: new Set(images.keys().map(hex)),
    containers: new Set(containers.list().map(({ id }) => id)),
    writables: new Set(layers.writableIds()),
    volumes: new Set(volumes.list().map(({ name }) => name)),
    plugins: new Set(plugins.list().map(({ id }) => id)),
    cacheRecords: new Set(cache.ids()),
    staging: new Set(staging),
    isRunning: true,
  };
}
