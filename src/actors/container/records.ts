/**
 * Container records on disk: `<root>/<id>/container.json`. Writes of one container are serialised and coalesced, the
 * newest wins; a removal renames the directory away first, so that after a crash the container is there whole or not at
 * all.
 */
import { readdir, rename, rm } from 'node:fs/promises';
import { join } from 'node:path';
import { messageOf } from '../../errors/engine-error.js';
import type { Owner } from '../../ports/id-maps.js';
import { inLanes } from '../../text/in-lanes.js';
import { letPass } from '../../sys/users/id-access.js';
import type { Survives } from '../../sys/files/durable-file.js';
import type { Urgent } from '../../sys/files/reserve.js';
import type { ContainerRecord, CreationDefaults } from './container.record.js';
import { makeDirectories } from '../../sys/files/make-directories.js';

export interface RecordIo {
  write(path: string, value: unknown, survives: Survives): Promise<void>;
  read(path: string): Promise<unknown>;
  /** Runs a write that does not wait for room on the disk. */
  readonly urgent: Urgent;
}

/** The start-up found these records; it deleted some directories and could not read others. */
export interface LoadedRecords {
  readonly records: ContainerRecord[];
  readonly removed: string[];
  /** The last records of containers whose removal was begun: nobody may have been told of it. See `retire`. */
  readonly retired: ContainerRecord[];
  readonly damaged: { readonly id: string; readonly reason: string }[];
}

const REMOVED_PREFIX = '.removed-';
const RECORD = 'container.json';

interface Write {
  wanted: ContainerRecord | undefined;
  isUrgent: boolean;
  survives: Survives;
  running: Promise<void> | undefined;
}

export class ContainerRecords {
  readonly #writes = new Map<string, Write>();

  constructor(
    readonly root: string,
    private readonly io: RecordIo,
    /** Besides root, this owner may read the mounted files: it is the root of containers. */
    private readonly owner: Owner = { uid: 0, gid: 0 },
    /** Older records do not say which options the daemon had; these values stand in for them. */
    private readonly defaults?: CreationDefaults,
  ) {}

  /** Returns the directory of a container, which has its record, log and mounted files. */
  dir(id: string): string {
    return join(this.root, id);
  }

  /**
   * Creates the directory. Only root can read it, because logs and records may hold secrets; the root of containers can
   * pass it.
   */
  async createDir(id: string): Promise<string> {
    const dir = this.dir(id);
    await makeDirectories(dir, { mode: 0o710 });
    await letPass(dir, this.owner);
    return dir;
  }

  /**
   * Resolves when this record, or a newer one, is durable. A record that is shown before that may be ahead of the disk
   * after a crash, but an older one is never written after a newer one. An `urgent` write may use reserved space when
   * the disk is full.
   */
  save(record: ContainerRecord, urgent = false): Promise<void> {
    return this.#save(record, urgent, 'power-cut');
  }

  /**
   * Does the same for what is true only while the machine runs. It survives a kill of the daemon; after a power cut the
   * record before it may be there. That costs half of the syncs.
   */
  saveForRun(record: ContainerRecord): Promise<void> {
    return this.#save(record, false, 'kill');
  }

  #save(record: ContainerRecord, urgent: boolean, survives: Survives): Promise<void> {
    let write = this.#writes.get(record.id);
    if (!write) {
      write = { wanted: undefined, isUrgent: false, survives: 'kill', running: undefined };
      this.#writes.set(record.id, write);
    }
    write.wanted = record;
    write.isUrgent ||= urgent;
    if (survives === 'power-cut') write.survives = survives;
    // A write under way may hold an older record: the one after it is ours.
    const after = write.running ?? Promise.resolve();
    const mine = after.catch(() => undefined).then(() => this.#flush(record.id, write));
    write.running = mine;
    return mine;
  }

  /** Returns the record of a container on disk, undefined when there is none. */
  async read(id: string): Promise<ContainerRecord | undefined> {
    return (await this.io.read(join(this.dir(id), RECORD))) as ContainerRecord | undefined;
  }

  /** Resolves when nothing of this container is being written, however that went. */
  async written(id: string): Promise<void> {
    await this.#writes.get(id)?.running?.catch(() => undefined);
  }

  async #flush(id: string, write: Write): Promise<void> {
    const { wanted: record, isUrgent, survives } = write;
    if (!record) return;
    write.wanted = undefined;
    write.isUrgent = false;
    write.survives = 'kill';
    const save = (): Promise<void> => this.io.write(join(this.dir(id), RECORD), record, survives);
    await (isUrgent ? this.io.urgent(save) : save());
  }

  /** Takes the container off the disk. */
  async remove(id: string): Promise<void> {
    await this.retire(id);
    await this.forget(id);
  }

  /**
   * Takes the container off the disk, but for its record, which is kept where no container is looked for. It says to
   * the next daemon that the removal may not have been told, until `forget`.
   */
  async retire(id: string): Promise<void> {
    const write = this.#writes.get(id);
    if (write) {
      write.wanted = undefined;
      await write.running?.catch(() => undefined);
      this.#writes.delete(id);
    }
    const trash = this.#trash(id);
    const names = await rename(this.dir(id), trash).then(
      () => readdir(trash),
      (error: NodeJS.ErrnoException) => {
        if (error.code !== 'ENOENT') throw error;
        return [];
      },
    );
    const others = names.filter((name) => name !== RECORD);
    await Promise.all(others.map((name) => rm(join(trash, name), { recursive: true, force: true })));
  }

  /** Removes what `retire` has kept. */
  async forget(id: string): Promise<void> {
    await rm(this.#trash(id), { recursive: true, force: true });
  }

  #trash(id: string): string {
    return join(this.root, `${REMOVED_PREFIX}${id}`);
  }

  /**
   * Reads all records. What a crash left half removed or half made is deleted and reported; unreadable ones are
   * reported.
   */
  async load(): Promise<LoadedRecords> {
    await makeDirectories(this.root, { mode: 0o710 });
    await letPass(this.root, this.owner);
    const records: ContainerRecord[] = [];
    const removed: string[] = [];
    const retired: ContainerRecord[] = [];
    const damaged: { id: string; reason: string }[] = [];
    const load = async (name: string): Promise<void> => {
      const dir = join(this.root, name);
      if (name.startsWith(REMOVED_PREFIX)) {
        const record = (await this.io.read(join(dir, RECORD)).catch(() => undefined)) as ContainerRecord | undefined;
        if (record) return void retired.push(record);
        await rm(dir, { recursive: true, force: true });
        removed.push(name.slice(REMOVED_PREFIX.length));
        return;
      }
      try {
        const record = (await this.io.read(join(dir, RECORD))) as ContainerRecord | undefined;
        if (record) records.push({ ...(this.defaults && { defaults: this.defaults }), ...record });
        else {
          // A create that never got as far as its first record promised nothing to anybody.
          await rm(dir, { recursive: true, force: true });
          removed.push(name);
        }
      } catch (error) {
        damaged.push({ id: name, reason: messageOf(error) });
      }
    };
    await inLanes(await readdir(this.root), load);
    return { records, removed, retired, damaged };
  }
}
