/** Finds the owners in a data root that no daemon uses: all that the next start would keep. */
import { createHash } from 'node:crypto';
import { readdir, readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { readOfflineCache } from '../build/cache/offline.js';
import { chainOf } from '../ports/chain-id.js';
import { isDigest } from '../images/reference.js';
import type { ImageConfigDocument } from '../ports/images.js';
import type { Digest } from '../ports/storage.js';
import { STORAGE_DRIVERS } from '../storage/drivers/index.js';
import { type OfflineStore, readOfflineStore } from '../storage/layers/offline.js';
import type { Owners } from './orphans.js';

const list = (path: string): Promise<string[]> =>
  readdir(path).catch((error: NodeJS.ErrnoException) => {
    if (error.code === 'ENOENT' || error.code === 'ENOTDIR') return [];
    throw error;
  });
const hex = (digest: string): string => digest.slice('sha256:'.length);

export async function readOwners(dataRoot: string): Promise<Owners> {
  const at = (...parts: string[]): string => join(dataRoot, ...parts);
  const stores = await Promise.all(STORAGE_DRIVERS.map(({ name }) => readOfflineStore(at(name))));
  const whole: OfflineStore['layers'] = new Map(stores.flatMap(({ layers }) => [...layers]));
  const images = await imagesOn(at('image/content'), whole);
  const [cached, containers, volumes] = await Promise.all([
    readOfflineCache(at('builder/cache'), whole),
    recorded(at('containers'), 'container.json'),
    recorded(at('volumes'), 'volume.json'),
  ]);

  const used = new Set<Digest>();
  const use = (top: Digest | undefined): void => {
    for (let chain = top; chain !== undefined && !used.has(chain); chain = whole.get(chain)?.parent ?? undefined)
      used.add(chain);
  };
  for (const { rootfs } of images.values()) use(chainOf(rootfs.diff_ids).at(-1));
  for (const { layer } of cached) use(layer);
  for (const id of containers) for (const { parents } of stores) use(parents.get(id));
  const kept = [...whole.values()].filter(({ chainId }) => used.has(chainId));
  return {
    layers: new Set(kept.map(({ shortId }) => shortId)),
    chains: new Set(kept.map(({ chainId }) => hex(chainId))),
    images: new Set(images.keys()),
    containers,
    writables: containers,
    volumes,
    cacheRecords: new Set(cached.map(({ id }) => id)),
    staging: new Set(),
    isRunning: false,
  };
}

/** Returns the images with a sound configuration whose layers exist. */
async function imagesOn(dir: string, layers: OfflineStore['layers']): Promise<Map<string, ImageConfigDocument>> {
  const found = new Map<string, ImageConfigDocument>();
  for (const name of await list(dir)) {
    if (!/^[0-9a-f]{64}$/.test(name)) continue;
    const bytes = await readFile(join(dir, name));
    if (createHash('sha256').update(bytes).digest('hex') !== name) continue;
    const config = parsed(bytes);
    const top = config && chainOf(config.rootfs.diff_ids).at(-1);
    if (config && (top === undefined || layers.has(top))) found.set(name, config);
  }
  return found;
}

function parsed(bytes: Buffer): ImageConfigDocument | undefined {
  try {
    const config = JSON.parse(bytes.toString('utf8')) as ImageConfigDocument | null;
    return Array.isArray(config?.rootfs?.diff_ids) && config.rootfs.diff_ids.every(isDigest) ? config : undefined;
  } catch {
    return undefined; // not an image: the start removes it
  }
}

/** Returns the names of directories with a record, even a damaged one, because somebody may want what is in them. */
async function recorded(dir: string, record: string): Promise<Set<string>> {
  const found = new Set<string>();
  for (const name of await list(dir)) if ((await list(join(dir, name))).includes(record)) found.add(name);
  return found;
}
