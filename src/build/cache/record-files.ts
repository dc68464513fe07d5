/** The files of the records, one each: `<id>.json`. Each is replaced as a whole, so a kill leaves none that is half. */
import { readdir, rm } from 'node:fs/promises';
import { join } from 'node:path';
import { isEngineError, messageOf } from '../../errors/engine-error.js';
import type { Logger } from '../../ports/logger.js';
import { KeyedLock } from '../../storage/keyed-lock.js';
import { readRecord, recordText, writeRecord } from '../../storage/record-store.js';
import { isTemporary, syncDirectory } from '../../sys/files/durable-file.js';
import { LateSyncs } from '../../sys/files/late-syncs.js';
import { readStoredRecord, recordIdOf, type StoredRecord } from './stored-record.js';

export class RecordFiles {
  readonly #root: string;
  readonly #lock = new KeyedLock();
  readonly #syncs: LateSyncs;

  /** The directory must exist before anything is done. */
  constructor(root: string, log: Logger) {
    this.#root = root;
    this.#syncs = new LateSyncs((error) => log.warn({ err: error }, 'records of the build cache not synced'));
  }

  /** Reads all records, and removes those that are damaged and what writes have left that were cut off. */
  async load(): Promise<{ readonly records: StoredRecord[]; readonly removed: string[] }> {
    const records: StoredRecord[] = [];
    const removed: string[] = [];
    const loadOne = async (name: string): Promise<void> => {
      const reason = isTemporary(name) ? 'a write was cut off' : await this.#read(name, records);
      if (reason === undefined) return;
      await rm(join(this.#root, name), { force: true });
      removed.push(`record ${name}: ${reason}`);
    };
    await Promise.all((await readdir(this.#root)).map(loadOne));
    return { records, removed };
  }

  /** Writes a new record. A crash of the machine may lose it until a moment later, and then a step is done again. */
  write(record: StoredRecord): Promise<void> {
    return this.#lock.run(record.id, () => this.#syncs.write(this.#path(record.id), recordText(record)));
  }

  /** Resolves when the records are on the disk. */
  sync(): Promise<void> {
    return this.#syncs.sync();
  }

  /** Writes a record again, if `current` still returns it when its turn has come. */
  rewrite(id: string, current: () => StoredRecord | undefined): Promise<void> {
    return this.#lock.run(id, async () => {
      const record = current();
      if (record !== undefined) await writeRecord(this.#path(id), record);
    });
  }

  /** Removes records in this order, so that a kill leaves none whose parent is gone. Idempotent. */
  async remove(ids: readonly string[]): Promise<void> {
    if (ids.length === 0) return;
    for (const id of ids) await this.#lock.run(id, () => rm(this.#path(id), { force: true }));
    await syncDirectory(this.#root);
  }

  /** Says why a file is no record, undefined when it is one or is not ours. */
  async #read(name: string, records: StoredRecord[]): Promise<string | undefined> {
    const id = recordIdOf(name);
    if (id === undefined) return undefined;
    try {
      const record = readStoredRecord(await readRecord(join(this.#root, name)));
      if (record.id !== id) return 'it is the record of another one';
      records.push(record);
      return undefined;
    } catch (error) {
      if (!isEngineError(error, 'data-loss')) throw error;
      return messageOf(error);
    }
  }

  #path(id: string): string {
    return join(this.#root, `${id}.json`);
  }
}
