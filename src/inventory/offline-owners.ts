/** Who there is on the disk of a data root that no daemon uses: what the next start would keep. */
import { createHash } from 'node:crypto';
import { readdir, readFile, readlink } from 'node:fs/promises';
import { join } from 'node:path';
import { chainOf } from '../images/chain.js';
import { isDigest } from '../images/reference.js';
import type { ImageConfigDocument } from '../ports/images.js';
import type { Digest } from '../ports/storage.js';
import { readRecord } from '../storage/record-store.js';
import { isTemporary } from '../sys/files/durable-file.js';
import type { Owners } from './orphans.js';

interface LayerRecord {
  readonly shortId: string;
  readonly chainId: Digest;
  readonly parent: Digest | null;
}

const list = (path: string): Promise<string[]> =>
  readdir(path).catch((error: NodeJS.ErrnoException) => {
    if (error.code === 'ENOENT' || error.code === 'ENOTDIR') return [];
    throw error;
  });
const hex = (digest: string): string => digest.slice('sha256:'.length);

export async function readOwners(dataRoot: string): Promise<Owners> {
  const at = (...parts: string[]): string => join(dataRoot, ...parts);
  const records = await layerRecords(at('overlay2/index'), new Set(await list(at('overlay2/layers'))));
  const whole = new Map([...records].filter(([chainId]) => isWhole(chainId, records)));
  const images = await imagesOn(at('image/content'), whole);
  const [containers, volumes] = await Promise.all([
    recorded(at('containers'), 'container.json'),
    recorded(at('volumes'), 'volume.json'),
  ]);

  const used = new Set<Digest>();
  const use = (top: Digest | undefined): void => {
    for (let chain = top; chain !== undefined && !used.has(chain); chain = whole.get(chain)?.parent ?? undefined)
      used.add(chain);
  };
  for (const { rootfs } of images.values()) use(chainOf(rootfs.diff_ids).at(-1));
  for (const id of containers) {
    const parent = await readlink(at('overlay2/writable', id, 'parent')).catch(() => undefined);
    if (isDigest(parent)) use(parent);
  }
  const kept = [...whole.values()].filter(({ chainId }) => used.has(chainId));
  return {
    layers: new Set(kept.map(({ shortId }) => shortId)),
    chains: new Set(kept.map(({ chainId }) => hex(chainId))),
    images: new Set(images.keys()),
    containers,
    writables: containers,
    volumes,
    staging: new Set(),
    isRunning: false,
  };
}

async function layerRecords(dir: string, layers: ReadonlySet<string>): Promise<Map<Digest, LayerRecord>> {
  const found = new Map<Digest, LayerRecord>();
  for (const name of await list(dir)) {
    if (isTemporary(name)) continue;
    // One that cannot be read is none: the start removes it.
    const record = (await readRecord(join(dir, name)).catch(() => undefined)) as LayerRecord | undefined;
    if (record && isDigest(record.chainId) && name === `${hex(record.chainId)}.json` && layers.has(record.shortId))
      found.set(record.chainId, record);
  }
  return found;
}

function isWhole(chainId: Digest, records: ReadonlyMap<Digest, LayerRecord>): boolean {
  const seen = new Set<Digest>();
  for (let chain: Digest | null = chainId; chain !== null;) {
    const record = records.get(chain);
    if (!record || seen.has(chain)) return false;
    seen.add(chain);
    chain = record.parent;
  }
  return true;
}

/** Images with a sound configuration whose layers are there. */
async function imagesOn(
  dir: string,
  layers: ReadonlyMap<Digest, LayerRecord>,
): Promise<Map<string, ImageConfigDocument>> {
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

/** Names of directories with a record, also a damaged one: what is in them may be dear to somebody. */
async function recorded(dir: string, record: string): Promise<Set<string>> {
  const found = new Set<string>();
  for (const name of await list(dir)) if ((await list(join(dir, name))).includes(record)) found.add(name);
  return found;
}
