/**
 * Container records on disk: `<root>/<id>/container.json`. What is true only while the machine runs is first in
 * `<run root>/<id>.json`, without a sync. Writes of one container are serialised and coalesced, the newest wins; a
 * removal renames the directory away first, so that after a crash the container is there whole or not at all.
 */
import { readdir, rename, rm } from 'node:fs/promises';
import { basename, join } from 'node:path';
import { messageOf } from '../../errors/engine-error.js';
import type { Owner } from '../../ports/id-maps.js';
import { removeFew } from '../../storage/remove-few.js';
import { inLanes } from '../../text/in-lanes.js';
import { letPass } from '../../sys/users/id-access.js';
import type { Urgent } from '../../sys/files/reserve.js';
import type { ContainerRecord, CreationDefaults } from './container.record.js';
import { makeDirectories } from '../../sys/files/make-directories.js';
import { isThere, removeFile } from '../../sys/files/remove-file.js';

export interface RecordIo {
  write(path: string, value: unknown): Promise<void>;
  read(path: string): Promise<unknown>;
  /** Returns what reads records as `read` does, and costs less for each of many. */
  reader(): (path: string) => Promise<unknown>;
  /** Returns what tells a file from the next one with its name. */
  identityOf(durable: string): Promise<string>;
  /** Writes what counts instead of the file of that identity until it is written again, or the machine ends. */
  writeForRun(path: string, identity: string, value: unknown): Promise<void>;
  readForRun(path: string, durable: string): Promise<unknown>;
  /** Told when a write that nobody waits for has failed. It is tried again. */
  failed(id: string, error: unknown): void;
  /** Runs a write that does not wait for room on the disk. */
  readonly urgent: Urgent;
}

/** The start-up found these records; it deleted some directories and could not read others. */
export interface LoadedRecords {
  readonly records: ContainerRecord[];
  readonly removed: string[];
  /** The last records of containers whose removal was begun: nobody may have been told of it. See `retire`. */
  readonly retired: ContainerRecord[];
  /** Those of `retired` whose anonymous volumes were to go with them, and may be there still. */
  readonly withVolumes: ContainerRecord[];
  /** The drafts of containers that were never made, but volumes for them may have been. See `saveDraft`. */
  readonly drafts: ContainerRecord[];
  readonly damaged: { readonly id: string; readonly reason: string }[];
}

const REMOVED_PREFIX = '.removed-';
/** The name itself says that volumes go, too, as the rename is the one step that a crash does not divide. */
const WITH_VOLUMES_PREFIX = `${REMOVED_PREFIX}volumes-`;
const RECORD = 'container.json';
const DRAFT = 'draft.json';

const RUN_SUFFIX = '.json';
/** A program that does little has ended by then, so that its run is written once. */
const DURABLE_AFTER_MS = 100;
/** The disk may be full. */
const RETRY_MS = 5_000;

interface Content {
  readonly record: ContainerRecord;
  readonly isUrgent: boolean;
}

interface Write {
  wanted: ContainerRecord | undefined;
  isUrgent: boolean;
  isForRun: boolean;
  /** That of the durable record, when it is known. */
  identity: string | undefined;
  /** This is written for the run only. */
  ahead: Content | undefined;
  timer: NodeJS.Timeout | undefined;
  running: Promise<void> | undefined;
  /** The last record that was written, or failed. */
  outcome: Promise<void> | undefined;
}

export class ContainerRecords {
  readonly #writes = new Map<string, Write>();

  constructor(
    readonly root: string,
    private readonly runRoot: string,
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
   * Keeps what a container is to be until its first record is saved, so that the next daemon knows which volumes were
   * made for it. Durable when the promise resolves.
   */
  async saveDraft(record: ContainerRecord): Promise<void> {
    await this.io.write(join(this.dir(record.id), DRAFT), record);
  }

  /** Removes the draft of a container whose record is saved; one that a crash leaves counts for nothing. */
  async removeDraft(id: string): Promise<void> {
    await removeFile(join(this.dir(id), DRAFT));
  }

  /**
   * Resolves when this record, or a newer one, is durable. A record that is shown before that may be ahead of the disk
   * after a crash, but an older one is never written after a newer one. An `urgent` write may use reserved space when
   * the disk is full.
   */
  save(record: ContainerRecord, urgent = false): Promise<void> {
    return this.#save(record, urgent, false);
  }

  /**
   * Does the same for what is true only while the machine runs: it survives a kill of the daemon when the promise
   * resolves. A power cut leaves the record before it.
   */
  saveForRun(record: ContainerRecord): Promise<void> {
    return this.#save(record, false, true);
  }

  /** Does that, and makes it durable a moment later unless another record, or a removal, has come until then. */
  async saveForRunFirst(record: ContainerRecord, urgent = false): Promise<void> {
    const write = this.#writeOf(record.id);
    await this.#save(record, urgent, true);
    this.#makeDurableLater(record.id, write, DURABLE_AFTER_MS);
  }

  #save(record: ContainerRecord, isUrgent: boolean, isForRun: boolean): Promise<void> {
    const write = this.#writeOf(record.id);
    write.wanted = record;
    write.isUrgent ||= isUrgent;
    write.isForRun &&= isForRun;
    // A write under way may hold an older record: the one after it is ours.
    return enqueue(write, () => this.#flush(record.id, write));
  }

  #writeOf(id: string): Write {
    const known = this.#writes.get(id);
    if (known) return known;
    const write: Write = {
      wanted: undefined,
      isUrgent: false,
      isForRun: true,
      identity: undefined,
      ahead: undefined,
      timer: undefined,
      running: undefined,
      outcome: undefined,
    };
    this.#writes.set(id, write);
    return write;
  }

  /** Returns the record of a container on disk, undefined when there is none. */
  async read(id: string): Promise<ContainerRecord | undefined> {
    const durable = this.#file(id);
    const ahead = await this.io.readForRun(this.#runFile(id), durable).catch(notThere);
    return (ahead ?? (await this.io.read(durable))) as ContainerRecord | undefined;
  }

  /** Resolves when nothing of this container is being written, however that went. */
  async written(id: string): Promise<void> {
    await this.#writes.get(id)?.running?.catch(() => undefined);
  }

  #flush(id: string, write: Write): Promise<void> | undefined {
    const { wanted: record, isUrgent, isForRun } = write;
    // The one before this took the record of both, and has done for both what it could.
    if (!record) return write.outcome;
    write.wanted = undefined;
    write.isUrgent = false;
    write.isForRun = true;
    write.outcome = isForRun
      ? this.#writeForRun(id, write, { record, isUrgent })
      : this.#makeDurable(id, write, { record, isUrgent });
    return write.outcome;
  }

  async #writeForRun(id: string, write: Write, content: Content): Promise<void> {
    write.identity ??= await this.io.identityOf(this.#file(id));
    await this.io.writeForRun(this.#runFile(id), write.identity, content.record);
    write.ahead = content;
  }

  async #makeDurable(id: string, write: Write, { record, isUrgent }: Content): Promise<void> {
    const save = (): Promise<void> => this.io.write(this.#file(id), record);
    write.identity = undefined;
    try {
      await (isUrgent ? this.io.urgent(save) : save());
    } catch (error) {
      if (write.ahead !== undefined) this.#makeDurableLater(id, write, RETRY_MS);
      throw error;
    }
    clearTimeout(write.timer);
    if (write.ahead === undefined) return;
    write.ahead = undefined;
    await removeFile(this.#runFile(id));
  }

  #makeDurableLater(id: string, write: Write, afterMs: number): void {
    clearTimeout(write.timer);
    const makeDurable = (): void => {
      this.#catchUp(id, write).catch((error: unknown) => this.io.failed(id, error));
    };
    write.timer = setTimeout(makeDurable, afterMs).unref();
  }

  /** Makes what was written for the run durable, when all that came before is written. */
  #catchUp(id: string, write: Write): Promise<void> {
    return enqueue(write, async () => {
      if (write.ahead) await this.#makeDurable(id, write, write.ahead);
    });
  }

  /** Resolves when all that was written is durable. */
  async close(): Promise<void> {
    await inLanes(this.#writes, async ([id, write]) => {
      clearTimeout(write.timer);
      await this.#catchUp(id, write).catch((error: unknown) => this.io.failed(id, error));
    });
  }

  /** Takes the container off the disk. */
  async remove(id: string): Promise<void> {
    await this.retire(id);
    await this.forget(id);
  }

  /**
   * Takes the container's directory away to where no container is looked for. Until `forget`, the record in it says to
   * the next daemon that the removal may not have been told, and the name whether anonymous volumes go with it.
   */
  async retire(id: string, withVolumes = false): Promise<void> {
    const write = this.#writes.get(id);
    if (write) {
      write.wanted = undefined;
      write.outcome = undefined;
      await write.running?.catch(() => undefined);
      clearTimeout(write.timer);
    }
    const [plain = '', volumes = ''] = this.#trash(id);
    await rename(this.dir(id), withVolumes ? volumes : plain).catch((error: NodeJS.ErrnoException) => {
      if (error.code !== 'ENOENT') throw error;
    });
    // It counts until then: without it the container would be what it was some time before.
    if (write?.ahead) await removeFile(this.#runFile(id));
    this.#writes.delete(id);
  }

  /** Removes what `retire` has kept. */
  async forget(id: string): Promise<void> {
    const paths = this.#trash(id).filter(isThere);
    // Mostly there are five files.
    if (!(await removeFew(paths))) for (const path of paths) await rm(path, { recursive: true, force: true });
  }

  #file(id: string): string {
    return join(this.dir(id), RECORD);
  }

  #runFile(id: string): string {
    return join(this.runRoot, `${id}${RUN_SUFFIX}`);
  }

  #trash(id: string): string[] {
    return [REMOVED_PREFIX, WITH_VOLUMES_PREFIX].map((prefix) => join(this.root, `${prefix}${id}`));
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
    const withVolumes: ContainerRecord[] = [];
    const drafts: ContainerRecord[] = [];
    const damaged: { id: string; reason: string }[] = [];
    const read = this.io.reader();
    const load = async (name: string): Promise<void> => {
      const dir = join(this.root, name);
      if (name.startsWith(REMOVED_PREFIX)) {
        const record = (await read(join(dir, RECORD)).catch(() => undefined)) as ContainerRecord | undefined;
        const hasVolumes = name.startsWith(WITH_VOLUMES_PREFIX);
        if (record && hasVolumes) withVolumes.push(record);
        if (record) return void retired.push(record);
        if (await loadDraft(dir)) return;
        await rm(dir, { recursive: true, force: true });
        removed.push(name.slice((hasVolumes ? WITH_VOLUMES_PREFIX : REMOVED_PREFIX).length));
        return;
      }
      try {
        const saved = (await read(join(dir, RECORD))) as ContainerRecord | undefined;
        const record = saved && (ahead.get(name) ?? saved);
        if (record) records.push({ ...(this.defaults && { defaults: this.defaults }), ...record });
        else {
          // A create that never got as far as its first record promised nothing to anybody.
          if (await loadDraft(dir)) await this.retire(name, true);
          else await rm(dir, { recursive: true, force: true });
          removed.push(name);
        }
      } catch (error) {
        damaged.push({ id: name, reason: messageOf(error) });
      }
    };
    const loadDraft = async (dir: string): Promise<boolean> => {
      const draft = (await read(join(dir, DRAFT)).catch(() => undefined)) as ContainerRecord | undefined;
      if (draft) drafts.push(draft);
      return draft !== undefined;
    };
    const ahead = await this.#loadAhead();
    await inLanes(await readdir(this.root), load);
    return { records, removed, retired, withVolumes, drafts, damaged };
  }

  /** Reads the records that a killed daemon had written for the run only, and goes on with making them durable. */
  async #loadAhead(): Promise<ReadonlyMap<string, ContainerRecord>> {
    await makeDirectories(this.runRoot, { mode: 0o700 });
    const ahead = new Map<string, ContainerRecord>();
    await inLanes(await readdir(this.runRoot), async (name) => {
      const id = basename(name, RUN_SUFFIX);
      const path = join(this.runRoot, name);
      const record = await this.io.readForRun(path, this.#file(id)).catch(notThere);
      if (record === undefined) return rm(path, { force: true });
      ahead.set(id, record as ContainerRecord);
      const write = this.#writeOf(id);
      write.ahead = { record: record as ContainerRecord, isUrgent: false };
      this.#makeDurableLater(id, write, DURABLE_AFTER_MS);
    });
    return ahead;
  }
}

/** Does the work when all that was begun before it is done, whatever came of that. */
function enqueue(write: Write, work: () => Promise<void> | undefined): Promise<void> {
  const mine = (write.running ?? Promise.resolve()).catch(() => undefined).then(work);
  write.running = mine;
  return mine;
}

/** A record for the run whose container or file is gone counts for nothing. */
const notThere = (): undefined => undefined;
