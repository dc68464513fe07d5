/** Finds the owners in a data root that no daemon uses: all that the next start would keep. */
import { readdir } from 'node:fs/promises';
import { join } from 'node:path';
import { readOfflineCache } from '../build/cache/offline.js';
import { chainOf } from '../ports/chain-id.js';
import { ImageContent } from '../images/content.js';
import { isDigest } from '../images/reference.js';
import type { ImageConfigDocument } from '../ports/images.js';
import type { Digest } from '../ports/storage.js';
import { driverPath, STORES } from '../storage/drivers/index.js';
import { type OfflineStore, readOfflineStore } from '../storage/layers/offline.js';
import type { Owners } from './orphans.js';

const list = (path: string): Promise<string[]> =>
  readdir(path).catch((error: NodeJS.ErrnoException) => {
    if (error.code === 'ENOENT' || error.code === 'ENOTDIR') return [];
    throw error;
  });
const hex = (digest: string): string => digest.slice('sha256:'.length);

export async function readOwners(dataRoot: string): Promise<Owners> {
  const drivers = await Promise.all(STORES.map(({ name }) => readDriver(dataRoot, name)));
  const volumes = await recorded(join(dataRoot, 'volumes'), 'volume.json');
  const plugins = await recorded(join(dataRoot, 'plugins'), 'plugin.json');
  const union = (of: (driver: DriverOwners) => Iterable<string>): Set<string> =>
    new Set(drivers.flatMap((driver) => [...of(driver)]));
  const containers = union((driver) => driver.containers);
  return {
    layers: union(({ kept }) => kept.map(({ shortId }) => shortId)),
    chains: union(({ kept }) => kept.map(({ chainId }) => hex(chainId))),
    images: union((driver) => driver.images),
    containers,
    writables: containers,
    volumes,
    plugins,
    cacheRecords: union((driver) => driver.cacheRecords),
    staging: new Set(),
    isRunning: false,
  };
}

interface DriverOwners {
  readonly kept: readonly { readonly shortId: string; readonly chainId: Digest }[];
  readonly images: Iterable<string>;
  readonly containers: ReadonlySet<string>;
  readonly cacheRecords: readonly string[];
}

/** Reads what one storage driver has. */
async function readDriver(dataRoot: string, name: string): Promise<DriverOwners> {
  const at = (path: string): string => join(dataRoot, driverPath(name, path));
  const { layers: whole, parents } = await readOfflineStore(join(dataRoot, name));
  const images = await imagesOn(at('image'), whole);
  const cached = await readOfflineCache(at('builder/cache'), whole);
  const containers = await recorded(at('containers'), 'container.json', 'draft.json');

  const used = new Set<Digest>();
  const use = (top: Digest | undefined): void => {
    for (let chain = top; chain !== undefined && !used.has(chain); chain = whole.get(chain)?.parent ?? undefined)
      used.add(chain);
  };
  for (const { rootfs } of images.values()) use(chainOf(rootfs.diff_ids).at(-1));
  for (const { layer } of cached) use(layer);
  for (const id of containers) use(parents.get(id));
  return {
    kept: [...whole.values()].filter(({ chainId }) => used.has(chainId)),
    images: images.keys(),
    containers,
    cacheRecords: cached.map(({ id }) => id),
  };
}

/** Returns the images with a sound configuration whose layers exist. */
async function imagesOn(root: string, layers: OfflineStore['layers']): Promise<Map<string, ImageConfigDocument>> {
  const found = new Map<string, ImageConfigDocument>();
  const content = new ImageContent(root);
  for (const name of await list(join(root, 'content'))) {
    if (!/^[0-9a-f]{64}$/.test(name)) continue;
    const config = await readConfig(content, `sha256:${name}`);
    const top = config && chainOf(config.rootfs.diff_ids).at(-1);
    if (config && (top === undefined || layers.has(top))) found.set(name, config);
  }
  return found;
}

async function readConfig(content: ImageContent, id: Digest): Promise<ImageConfigDocument | undefined> {
  try {
    const bytes = await content.read(id, await content.readMetadata(id));
    const config = bytes && (JSON.parse(bytes.toString('utf8')) as ImageConfigDocument | null);
    return config && Array.isArray(config.rootfs?.diff_ids) && config.rootfs.diff_ids.every(isDigest)
      ? config
      : undefined;
  } catch {
    return undefined; // not an image: the start removes it
  }
}

/** Returns the names of directories with a record, even a damaged one, because somebody may want what is in them. */
async function recorded(dir: string, ...records: readonly string[]): Promise<Set<string>> {
  const found = new Set<string>();
  for (const name of await list(dir))
    if ((await list(join(dir, name))).some((file) => records.includes(file))) found.add(name);
  return found;
}
