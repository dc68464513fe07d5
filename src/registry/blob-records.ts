/**
 * Records which blobs in which repositories hold a layer. With them a push finds a layer that the registry already has,
 * in this repository or in another. They are only hints: the registry is asked before one is believed.
 */
import { readdir, rm } from 'node:fs/promises';
import { join } from 'node:path';
import { isEngineError } from '../errors/engine-error.js';
import type { Digest } from '../ports/storage.js';
import { readRecord, writeRecord } from '../storage/record-store.js';
import { makeDirectories } from '../sys/files/make-directories.js';

export interface BlobRecord {
  readonly digest: Digest;
  readonly sizeBytes: number;
  readonly mediaType: string;
  /** `docker.io/library/alpine`. */
  readonly repository: string;
}

/** So many records are kept for one layer; the oldest are forgotten. */
const MAX_RECORDS = 32;

export class BlobRecords {
  readonly #dir: string;
  readonly #writing = new Map<Digest, Promise<void>>();

  /** @param dir `<dataRoot>/image/distribution`, with a record per diff ID; made when missing. */
  constructor(dir: string) {
    this.#dir = dir;
  }

  /** Makes the directory and removes the records of layers that are gone. */
  async load(diffIds: ReadonlySet<string>): Promise<void> {
    await makeDirectories(this.#dir, { mode: 0o700 });
    const names = await readdir(this.#dir);
    await Promise.all(
      names
        .filter((name) => !diffIds.has(`sha256:${name.replace(/\.json$/, '')}`))
        .map((name) => rm(join(this.#dir, name), { force: true })),
    );
  }

  /** Returns the records of a layer, the newest first. A damaged file counts as none. */
  async of(diffId: Digest): Promise<readonly BlobRecord[]> {
    try {
      return ((await readRecord(this.#path(diffId))) as BlobRecord[] | undefined) ?? [];
    } catch (error) {
      if (isEngineError(error, 'data-loss')) return [];
      throw error;
    }
  }

  /** Notes that a repository has the layer as this blob. */
  async add(diffId: Digest, record: BlobRecord): Promise<void> {
    const write = async (): Promise<void> => {
      const known = await this.of(diffId);
      const isEqual = (one: BlobRecord): boolean =>
        one.digest === record.digest && one.repository === record.repository;
      if (known.some(isEqual)) return;
      await writeRecord(this.#path(diffId), [record, ...known].slice(0, MAX_RECORDS));
    };
    const before = this.#writing.get(diffId) ?? Promise.resolve();
    const done = before.then(write, write);
    this.#writing.set(diffId, done);
    try {
      await done;
    } finally {
      if (this.#writing.get(diffId) === done) this.#writing.delete(diffId);
    }
  }

  #path(diffId: Digest): string {
    return join(this.#dir, `${diffId.slice(7)}.json`);
  }
}
