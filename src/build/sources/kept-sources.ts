/**
 * Keeps what earlier builds fetched in directories of the build cache. The content of one counts when its record is
 * there: while it changes there is none, so what a daemon that was killed leaves is made anew.
 */
import { createHash } from 'node:crypto';
import { mkdir, rm } from 'node:fs/promises';
import { join } from 'node:path';
import type { CacheMount, KeptDirectories, KeptDirectoryOrder } from '../../ports/build-cache.js';
import { removeTornWrites } from '../../sys/files/torn-writes.js';
import { readRecord, removeRecord, writeRecord } from '../../storage/record-store.js';
import { reasonOf } from './cancellation.js';

const RECORD = 'facts.json';
const CONTENT = 'content';

export type Facts = Readonly<Record<string, string>>;

export interface OpenEntry {
  /** The directory of the content; it is there. */
  readonly directory: string;
  /** Those of the last change; undefined: the entry is new and empty. */
  readonly facts: Facts | undefined;
  /** Changes the content. What was there before is lost when the work fails. */
  readonly change: (work: () => Promise<Facts>) => Promise<void>;
}

export class KeptSources {
  constructor(private readonly directories: KeptDirectories) {}

  /** Runs work on one entry, alone. Waiting for it ends when the signal is aborted. */
  async use<T>(
    { id, type, description }: KeptDirectoryOrder,
    signal: AbortSignal,
    work: (entry: OpenEntry) => Promise<T>,
  ): Promise<T> {
    const name = createHash('sha256').update(id).digest('hex');
    const mount = await this.#take({ id: name, type, description }, signal);
    try {
      return await work(await open(mount.directory));
    } finally {
      await mount.release();
    }
  }

  async #take(order: KeptDirectoryOrder, signal: AbortSignal): Promise<CacheMount> {
    try {
      return await this.directories.openKept(order, signal);
    } catch (error) {
      throw signal.aborted ? reasonOf(signal) : error;
    }
  }
}

async function open(place: string): Promise<OpenEntry> {
  const directory = join(place, CONTENT);
  const record = join(place, RECORD);
  const facts = (await readRecord(record).catch(() => undefined)) as Facts | undefined;
  if (facts === undefined) {
    await rm(directory, { recursive: true, force: true });
    await removeTornWrites([place], []);
  }
  await mkdir(directory, { recursive: true, mode: 0o700 });
  const change: OpenEntry['change'] = async (work) => {
    await removeRecord(record);
    await writeRecord(record, await work());
  };
  return { directory, facts, change };
}
