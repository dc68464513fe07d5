/** The files of the records, one each: `<id>.json`. Each is replaced as a whole, so a kill leaves none that is half. */
import { readdir, rm } from 'node:fs/promises';
import { join } from 'node:path';
import { isEngineError, messageOf } from '../../errors/engine-error.js';
import { KeyedLock } from '../../storage/keyed-lock.js';
import { readRecord, writeRecord } from '../../storage/record-store.js';
import { isTemporary, syncDirectory } from '../../sys/files/durable-file.js';
import { readStoredRecord, recordIdOf, type StoredRecord } from './stored-record.js';

export class RecordFiles {
  readonly #root: string;
  readonly #lock = new KeyedLock();

  /** The directory must exist before anything is done. */
  constructor(root: string) {
    this.#root = root;
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

  /** Resolves when the record is on the disk. */
  write(record: StoredRecord): Promise<void> {
    return this.#lock.run(record.id, () => writeRecord(this.#path(record.id), record));
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
