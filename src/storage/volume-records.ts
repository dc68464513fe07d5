/**
 * Keeps the records of volumes: `<root>/<name>/volume.json`, beside `_data` for the files of a volume of the local
 * driver. A volume appears and disappears by a rename, so a crash leaves it whole or not at all.
 */
import { chmod, chown, mkdir, readdir, rename, stat } from 'node:fs/promises';
import { join } from 'node:path';
import { conflict, isEngineError } from '../errors/engine-error.js';
import type { Owner } from '../ports/id-maps.js';
import type { WorkerPool } from '../workers/pool.js';
import { randomName } from './random-name.js';
import { readRecord, writeRecord } from './record-store.js';
import { syncDirectory } from '../sys/files/durable-file.js';
import { removeFile } from '../sys/files/remove-file.js';
import { removeTrees } from './remove-few.js';
import { storageError } from './storage-error.js';
import { makeDirectories } from '../sys/files/make-directories.js';

export interface VolumeRecord {
  readonly name: string;
  readonly driver: string;
  /** RFC 3339, seconds. */
  readonly createdAt: string;
  readonly labels: Readonly<Record<string, string>> | null;
  readonly options: Readonly<Record<string, string>> | null;
  /** True if the daemon made the name. */
  readonly isAnonymous: boolean;
  /** Absent if the driver is for this host only. */
  readonly scope?: 'global';
}

/** A volume that is gone but for its record: nobody may have been told of it. */
export interface RemovedVolume {
  readonly name: string;
  readonly driver: string;
  readonly removedMs: number;
}

export const LOCAL_DRIVER = 'local';
/** Names of volumes never begin with a dot. */
const UNFINISHED = '.new-';
const REMOVED = '.removed-';
const RECORD = 'volume.json';

export class VolumeRecords {
  readonly #records = new Map<string, VolumeRecord>();
  /** Those that an earlier daemon removed, by the name of the directory. */
  readonly #removed = new Map<string, RemovedVolume>();

  constructor(
    readonly root: string,
    private readonly workers: WorkerPool,
    /** This owner gets the directories of new volumes. */
    private readonly owner: Owner,
  ) {}

  /** Reads all records. What a crash left is deleted; a damaged volume keeps its files and is reported. */
  async load(): Promise<{ readonly removed: readonly string[]; readonly damaged: readonly string[] }> {
    await makeDirectories(this.root, { mode: 0o701 });
    const removed: string[] = [];
    const damaged: string[] = [];
    for (const entry of await readdir(this.root, { withFileTypes: true })) {
      if (entry.name.startsWith(UNFINISHED) || entry.name.startsWith(REMOVED)) removed.push(entry.name);
      else if (entry.isDirectory() && !(await this.#load(entry.name))) damaged.push(entry.name);
    }
    await Promise.all(removed.map((name) => this.#loadRemoved(name)));
    const nobodys = removed.filter((name) => !this.#removed.has(name)).map((name) => this.home(name));
    if (nobodys.length > 0) await this.workers.run('remove-trees', { paths: nobodys });
    return { removed, damaged };
  }

  /** Keeps the record of a volume that was being removed until `clearRemoved`. */
  async #loadRemoved(name: string): Promise<void> {
    if (!name.startsWith(REMOVED)) return;
    const home = this.home(name);
    const record = (await readRecord(join(home, RECORD)).catch(() => undefined)) as VolumeRecord | undefined;
    // The time of its rename, or of the end of its files, before which nobody was told.
    if (record) this.#removed.set(name, { ...record, removedMs: (await stat(home)).ctimeMs });
  }

  /** Returns the volumes that an earlier daemon was removing at its end. */
  get removed(): RemovedVolume[] {
    return [...this.#removed.values()];
  }

  /** Deletes what is left of those. */
  async clearRemoved(): Promise<void> {
    const names = [...this.#removed.keys()];
    this.#removed.clear();
    await Promise.all(names.map((name) => this.#clear(this.home(name))));
  }

  list(): VolumeRecord[] {
    return [...this.#records.values()];
  }

  find(name: string): VolumeRecord | undefined {
    return this.#records.get(name);
  }

  /** Returns the directory of a volume. */
  home(name: string): string {
    return join(this.root, name);
  }

  /** Returns the directory of the files of a local volume. */
  files(name: string): string {
    return join(this.root, name, '_data');
  }

  /**
   * Durable when the promise resolves. @throws EngineError conflict for a name whose directory is there without a
   * record.
   */
  async add(record: VolumeRecord): Promise<void> {
    const staging = join(this.root, UNFINISHED + randomName());
    try {
      await mkdir(staging, { mode: 0o701 });
      if (record.driver === LOCAL_DRIVER) {
        await mkdir(join(staging, '_data'));
        await chmod(join(staging, '_data'), 0o755);
        await chown(join(staging, '_data'), this.owner.uid, this.owner.gid);
      }
      await writeRecord(join(staging, RECORD), record);
      await rename(staging, this.home(record.name));
      await syncDirectory(this.root);
    } catch (error) {
      await this.workers.run('remove-trees', { paths: [staging] });
      const { code } = error as NodeJS.ErrnoException;
      if (code === 'ENOTEMPTY' || code === 'EEXIST')
        throw conflict(`volume ${record.name} is damaged: its directory is there without its record`, { cause: error });
      throw storageError(error, `creating volume ${record.name}`);
    }
    this.#records.set(record.name, record);
  }

  /**
   * Deletes a volume with all that is in its directory. Its record goes when the removal is told beyond a crash.
   * @param tell tells of it, and resolves then.
   */
  async remove(name: string, tell: () => Promise<void>): Promise<void> {
    const trash = join(this.root, REMOVED + randomName());
    try {
      await rename(this.home(name), trash);
      this.#records.delete(name);
      await syncDirectory(this.root);
      await this.workers.run('remove-trees', { paths: [join(trash, '_data')] });
    } catch (error) {
      throw storageError(error, `removing volume ${name}`);
    }
    await tell();
    // The next start does it otherwise.
    await this.#clear(trash).catch(() => undefined);
  }

  /** The record is the first to go: without it, nobody is told. */
  async #clear(trash: string): Promise<void> {
    await removeFile(join(trash, RECORD));
    await removeTrees(this.workers, [trash]);
  }

  async #load(name: string): Promise<boolean> {
    try {
      const record = (await readRecord(join(this.home(name), RECORD))) as VolumeRecord | undefined;
      if (record?.name === name) this.#records.set(name, record);
      return record?.name === name;
    } catch (error) {
      if (isEngineError(error, 'data-loss')) return false;
      throw error;
    }
  }
}
