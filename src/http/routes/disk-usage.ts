/** What the data root holds: `system df`, and the check that every byte of it has an owner. */
import type { ContainerRecord } from '../../actors/container/container.record.js';
import type { DiskUsage } from '../../actors/engine/disk-usage.js';
import { invalid } from '../../errors/engine-error.js';
import { chainOf } from '../../images/chain.js';
import type { FileImageStore } from '../../images/store.js';
import type { FsckReport } from '../../inventory/fsck.js';
import type { Digest } from '../../ports/storage.js';
import { listItemJson, type ViewContext } from '../api/container-view.js';
import { summaryJson } from '../api/images.js';
import type { Exchange } from '../exchange.js';
import { route, type Route } from '../route.js';
import { volumeView, type VolumeInfo } from './volumes.js';

export interface DiskUsageRouteDeps {
  readonly usage: { measure(): Promise<DiskUsage> };
  readonly images: FileImageStore;
  readonly containers: { list(): readonly ContainerRecord[] };
  readonly view: ViewContext;
  readonly volumes: { list(): readonly VolumeInfo[] };
  /** Checks the data root while the daemon runs. */
  readonly fsck: (repair: boolean) => Promise<FsckReport>;
  readonly dataRoot: string;
}

const TYPES = ['container', 'image', 'volume', 'build-cache'];

export function diskUsageRoutes(deps: DiskUsageRouteDeps): Route[] {
  return [
    route('GET', '/system/df', async (x) => {
      const types = x.atLeast(1, 42) ? x.query.all('type') : [];
      for (const type of types)
        if (!TYPES.includes(type)) throw invalid(`unknown object type: ${type}`, { code: 'UNKNOWN_TYPE' });
      const wants = (type: string): boolean => types.length === 0 || types.includes(type);
      const usage = await deps.usage.measure();
      const members = [
        `"LayersSize":${wants('image') ? usage.imageBytes : 0}`,
        `"Images":${wants('image') ? JSON.stringify(imagesJson(x, deps, usage)) : 'null'}`,
        `"Containers":${wants('container') ? containersJson(deps, usage) : 'null'}`,
        `"Volumes":${wants('volume') ? JSON.stringify(volumesJson(deps, usage)) : 'null'}`,
        // The builder is what would have a cache.
        `"BuildCache":${wants('build-cache') ? '[]' : 'null'}`,
        ...(x.atLeast(1, 42) ? [] : ['"BuilderSize":0']),
        `"DataRoot":${JSON.stringify(dataRootJson(deps.dataRoot, usage))}`,
      ];
      x.sendRenderedJson(200, `{${members.join(',')}}\n`);
    }),

    route('POST', '/engine/fsck', async (x) => x.sendJson(200, await deps.fsck(!x.query.flag('dryRun')))),
  ];
}

/** Sizes on the disk, so that what images share and have alone sums up to `LayersSize` but for records. */
function imagesJson(
  x: Exchange,
  { images, containers }: DiskUsageRouteDeps,
  { layers }: DiskUsage,
): readonly unknown[] {
  const all = images.list();
  const chains = new Map(all.map((image) => [image.id, chainOf(image.config.rootfs.diff_ids)]));
  const owners = new Map<Digest, number>();
  for (const chain of chains.values()) for (const layer of chain) owners.set(layer, (owners.get(layer) ?? 0) + 1);
  const users = new Map<string, number>();
  for (const { image } of containers.list()) users.set(image, (users.get(image) ?? 0) + 1);
  const parents = new Set(all.map(({ parent }) => parent));
  return all
    .filter((image) => image.repoTags.length > 0 || image.repoDigests.length > 0 || !parents.has(image.id))
    .map((image) => {
      let size = 0;
      let shared = 0;
      for (const layer of chains.get(image.id) ?? []) {
        const bytes = layers.get(layer) ?? 0;
        size += bytes;
        if ((owners.get(layer) ?? 0) > 1) shared += bytes;
      }
      const { repoTags, repoDigests } = image;
      const summary = summaryJson(
        { image, repoTags, repoDigests },
        { sharedSize: shared, manifests: undefined },
        (major, minor) => x.atLeast(major, minor),
      );
      return {
        ...summary,
        Size: size,
        ...(x.atLeast(1, 44) ? {} : { VirtualSize: size }),
        Containers: users.get(image.id) ?? 0,
      };
    });
}

function containersJson({ containers, view }: DiskUsageRouteDeps, usage: DiskUsage): string {
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

function volumesJson({ volumes, containers }: DiskUsageRouteDeps, usage: DiskUsage): readonly unknown[] {
  const users = new Map<string, number>();
  for (const { mounts } of containers.list()) {
    for (const name of new Set(
      mounts.flatMap(({ Type, Name }) => (Type === 'volume' && Name !== undefined ? [Name] : [])),
    ))
      users.set(name, (users.get(name) ?? 0) + 1);
  }
  return volumes.list().map((volume) => ({
    ...volumeView(volume),
    UsageData: {
      Size: volume.driver === 'local' ? (usage.volumes.get(volume.name) ?? 0) : -1,
      RefCount: users.get(volume.name) ?? 0,
    },
  }));
}

/** Ours: the whole data root, by kinds of owners. */
function dataRootJson(path: string, { totalBytes, kinds, partials }: DiskUsage): unknown {
  return {
    Path: path,
    Size: totalBytes,
    Kinds: [...kinds].map(([kind, { count, bytes }]) => ({ Kind: kind, Count: count, Size: bytes })),
    Partials: [...partials].map(([digest, bytes]) => ({ Digest: digest, Size: bytes })),
  };
}
