/** Reads the records of a build cache that no daemon uses: those that the next start would keep. */
import { readdir } from 'node:fs/promises';
import { join } from 'node:path';
import { isEngineError } from '../../errors/engine-error.js';
import type { Digest } from '../../ports/storage.js';
import { readRecord } from '../../storage/record-store.js';
import { readStoredRecord, recordIdOf, type StoredRecord } from './stored-record.js';

/** @param root `<data-root>/builder/cache` */
export async function readOfflineCache(
  root: string,
  layers: { has(chainId: Digest): boolean },
): Promise<readonly StoredRecord[]> {
  const [names, directories] = await Promise.all([list(join(root, 'records')), list(join(root, 'directories'))]);
  const present = new Set(directories);
  const records: StoredRecord[] = [];
  for (const name of names) {
    const id = recordIdOf(name);
    const record = id === undefined ? undefined : await readOne(join(root, 'records', name));
    if (record === undefined || record.id !== id) continue;
    const isWhole =
      record.directoryName === undefined ? record.layer === undefined || layers.has(record.layer) : present.has(id);
    if (isWhole) records.push(record);
  }
  return records;
}

async function readOne(path: string): Promise<StoredRecord | undefined> {
  try {
    return readStoredRecord(await readRecord(path));
  } catch (error) {
    if (isEngineError(error, 'data-loss')) return undefined;
    throw error;
  }
}

function list(path: string): Promise<string[]> {
  return readdir(path).catch((error: NodeJS.ErrnoException) => {
    if (error.code === 'ENOENT') return [];
    throw error;
  });
}
