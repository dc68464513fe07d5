/** The reply to GET /system/df. */
import { type ContainerRecord, containersPerImage } from '../../actors/container/container.record.js';
import type { DiskUsage } from '../../actors/engine/disk-usage.js';
import type { CacheUsage } from '../../ports/build.js';
import type { FileImageStore } from '../../images/store.js';
import type { Digest } from '../../ports/storage.js';
import type { AtLeast } from './at-least.js';
import { listItemJson, type ViewContext } from './container-view.js';
import { type ContentBytes, contentSum } from './image-manifests.js';
import { summaryJson } from './images.js';
import { volumeView, type VolumeInfo } from './volume-view.js';

/** The owners of bytes on the disk. */
export interface DiskUsageSources {
  readonly images: FileImageStore;
  readonly contentBytes: ContentBytes;
  readonly containers: { list(): readonly ContainerRecord[] };
  readonly view: ViewContext;
  readonly volumes: { list(): readonly VolumeInfo[] };
  readonly dataRoot: string;
  /** Returns the layers that only the build cache has. */
  readonly cacheLayers: () => ReadonlySet<Digest>;
}

/** Renders the reply. @param wants says whether the client asked for a type of objects. */
export function diskUsageJson(
  sources: DiskUsageSources,
  usage: DiskUsage,
  cache: readonly CacheUsage[],
  wants: (type: string) => boolean,
  atLeast: AtLeast,
): string {
  const builderSize = atLeast(1, 42) ? 0 : cache.reduce((sum, { size }) => sum + size, 0);
  const members = [
    `"LayersSize":${wants('image') ? usage.imageBytes - cacheBytes(sources, usage) : 0}`,
    `"Images":${wants('image') ? JSON.stringify(imagesJson(sources, usage, atLeast)) : 'null'}`,
    `"Containers":${wants('container') ? containersJson(sources, usage) : 'null'}`,
    `"Volumes":${wants('volume') ? JSON.stringify(volumesJson(sources, usage)) : 'null'}`,
    `"BuildCache":${wants('build-cache') ? JSON.stringify(cache.map((record) => cacheJson(record, atLeast))) : 'null'}`,
    // dockerd leaves out a sum of 0, so clients of that time saw the member only when there was a cache.
    ...(builderSize === 0 ? [] : [`"BuilderSize":${builderSize}`]),
    `"DataRoot":${JSON.stringify(dataRootJson(sources.dataRoot, usage))}`,
  ];
  return `{${members.join(',')}}\n`;
}

/**
 * Sizes are those on the disk, so that what images share and have alone sums up to `LayersSize`, except for records.
 */
function imagesJson(
  { images, containers, contentBytes }: DiskUsageSources,
  { layers }: DiskUsage,
  atLeast: AtLeast,
): readonly unknown[] {
  const all = images.list();
  const chains = new Map(all.map(({ id }) => [id, images.layersOf(id)]));
  const owners = new Map<Digest, number>();
  for (const chain of chains.values()) for (const layer of chain) owners.set(layer, (owners.get(layer) ?? 0) + 1);
  const users = containersPerImage(containers.list());
  const parents = new Set(all.map(({ parent }) => parent));
  return all
    .filter((image) => image.repoTags.length > 0 || image.repoDigests.length > 0 || !parents.has(image.id))
    .map((image) => {
      const content = contentSum(image, contentBytes);
      let size = content ?? 0;
      let shared = 0;
      for (const layer of chains.get(image.id) ?? []) {
        const bytes = layers.get(layer) ?? 0;
        size += bytes;
        if ((owners.get(layer) ?? 0) > 1) shared += bytes;
      }
      const { repoTags, repoDigests } = image;
      const summary = summaryJson(
        { image, repoTags, repoDigests },
        { containers: users.get(image.id) ?? 0, sharedSize: shared, manifests: undefined, contentBytes: content },
        atLeast,
      );
      return {
        ...summary,
        Size: size,
        ...(atLeast(1, 44) ? {} : { VirtualSize: size }),
      };
    });
}

function containersJson({ containers, view }: DiskUsageSources, usage: DiskUsage): string {
  const nowMs = Date.now();
  const items = containers.list().map((record) => {
    const rw = usage.containers.get(record.id) ?? 0;
    return listItemJson(record, view, 'annotated', nowMs, {
      rw,
      rootFs: rw + (record.topLayer ? usage.stackBytes(record.topLayer) : 0),
    });
  });
  return `[${items.join(',')}]`;
}

function volumesJson({ volumes, containers }: DiskUsageSources, usage: DiskUsage): readonly unknown[] {
  const users = new Map<string, number>();
  for (const { mounts } of containers.list()) {
    for (const name of new Set(
      mounts.flatMap(({ Type, Name }) => (Type === 'volume' && Name !== undefined ? [Name] : [])),
    ))
      users.set(name, (users.get(name) ?? 0) + 1);
  }
  // The bytes of the others are not on this disk: those of a plugin, and what options have mounted.
  const own = volumes
    .list()
    .filter(({ driver, options }) => driver === 'local' && Object.keys(options ?? {}).length === 0);
  return own.map((volume) => ({
    ...volumeView(volume),
    UsageData: { Size: usage.volumes.get(volume.name) ?? 0, RefCount: users.get(volume.name) ?? 0 },
  }));
}

function cacheBytes({ cacheLayers }: DiskUsageSources, { layers }: DiskUsage): number {
  let total = 0;
  for (const layer of cacheLayers()) total += layers.get(layer) ?? 0;
  return total;
}

function cacheJson({ parents, type, createdAt, lastUsedAt, ...record }: CacheUsage, atLeast: AtLeast): unknown {
  return {
    ID: record.id,
    // The blank is in the API.
    ...(parents.length > 0 && atLeast(1, 42) ? { ' Parents': parents } : {}),
    Type: type,
    Description: record.description,
    InUse: record.inUse,
    Shared: record.shared,
    Size: record.size,
    CreatedAt: new Date(createdAt).toISOString(),
    LastUsedAt: lastUsedAt === undefined ? null : new Date(lastUsedAt).toISOString(),
    UsageCount: record.usageCount,
  };
}

/** Shows the whole data root, by kinds of owners. This part is an addition of this engine. */
function dataRootJson(path: string, { totalBytes, kinds, partials, otherDrivers }: DiskUsage): unknown {
  return {
    Path: path,
    Size: totalBytes,
    Kinds: [...kinds].map(([kind, { count, bytes }]) => ({ Kind: kind, Count: count, Size: bytes })),
    OtherDrivers: [...otherDrivers].map(([driver, bytes]) => ({ Driver: driver, Size: bytes })),
    Partials: [...partials].map(([digest, bytes]) => ({ Digest: digest, Size: bytes })),
  };
}
