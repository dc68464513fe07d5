/** Reads the store of a data root that no daemon uses: the layers that a start would find, and who has them. */
import { readdir, readlink } from 'node:fs/promises';
import { join } from 'node:path';
import type { Digest } from '../../ports/storage.js';
import { isTemporary } from '../../sys/files/durable-file.js';
import { readRecord } from '../record-store.js';
import { Layout } from './layout.js';
import { NO_PARENT, parentLink } from './parent-link.js';
import type { IndexRecord } from './read-only-layers.js';

export interface OfflineStore {
  /** Layers that are whole, like all layers below them. */
  readonly layers: ReadonlyMap<Digest, Pick<IndexRecord, 'shortId' | 'chainId' | 'parent'>>;
  /** The layer below each container, by the ID of the container. */
  readonly parents: ReadonlyMap<string, Digest>;
}

/** @param root is the directory of the store; a missing one is an empty store. */
export async function readOfflineStore(root: string): Promise<OfflineStore> {
  const layout = new Layout(root);
  const records = await readRecords(layout);
  const parents = new Map<string, Digest>();
  for (const id of await list(layout.writable)) {
    const parent = await readlink(parentLink(layout.container(id))).catch(() => undefined);
    if (parent !== undefined && parent !== NO_PARENT) parents.set(id, parent as Digest);
  }
  return { layers: new Map([...records].filter(([chainId]) => isWhole(chainId, records))), parents };
}

async function readRecords(layout: Layout): Promise<Map<Digest, IndexRecord>> {
  const names = new Set(await list(layout.layers));
  const found = new Map<Digest, IndexRecord>();
  for (const name of await list(layout.index)) {
    if (isTemporary(name)) continue;
    const path = join(layout.index, name);
    // A record that cannot be read counts as none: the start removes it.
    const record = (await readRecord(path).catch(() => undefined)) as IndexRecord | undefined;
    const isSound = typeof record?.chainId === 'string' && layout.indexRecord(record.chainId) === path;
    if (isSound && names.has(record.shortId)) found.set(record.chainId, record);
  }
  return found;
}

function isWhole(chainId: Digest, records: ReadonlyMap<Digest, IndexRecord>): boolean {
  const seen = new Set<Digest>();
  for (let chain: Digest | null = chainId; chain !== null;) {
    const record = records.get(chain);
    if (!record || seen.has(chain)) return false;
    seen.add(chain);
    chain = record.parent;
  }
  return true;
}

async function list(path: string): Promise<string[]> {
  try {
    return await readdir(path);
  } catch (error) {
    const { code } = error as NodeJS.ErrnoException;
    if (code === 'ENOENT' || code === 'ENOTDIR') return [];
    throw error;
  }
}
