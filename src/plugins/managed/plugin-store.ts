/**
 * Managed plugins on the disk: `plugins/<id>` has `plugin.json`, the directory `propagated-mount`, and a tree with the
 * files of the plugin. Everything is made in `plugins/.new-…` first and appears by one rename. An upgrade brings
 * another tree, which counts as soon as the record names it.
 */
import { randomBytes } from 'node:crypto';
import { mkdir, readdir, rename } from 'node:fs/promises';
import { join } from 'node:path';
import type { PluginFiles, PluginRecord } from '../../ports/managed-plugin.js';
import { readRecord, writeRecord } from '../../storage/record-store.js';
import { syncDirectory } from '../../sys/files/durable-file.js';
import { makeDirectories } from '../../sys/files/make-directories.js';
import { syncFileSystem } from '../../sys/files/sync-file-system.js';
import type { WorkerPool } from '../../workers/pool.js';

const ID = /^[0-9a-f]{64}$/;
const UNFINISHED = /^\.(?:new|removed)-/;
const TREE = /^tree-[0-9a-f]{12}$/;
const RECORD = 'plugin.json';
const PROPAGATED = 'propagated-mount';

/** A plugin that is being made. */
export interface StagedPlugin {
  /** Directory for `rootfs` and `content`. */
  readonly dir: string;
  readonly rootfs: string;
  readonly content: string;
}

export interface LoadedPlugins {
  readonly records: readonly PluginRecord[];
  /** Names of what a crash left. */
  readonly removed: readonly string[];
  /** Plugins without a readable record, which are left alone. */
  readonly damaged: readonly string[];
}

export class PluginStore {
  constructor(
    private readonly root: string,
    private readonly workers: Pick<WorkerPool, 'run'>,
  ) {}

  /** Reads all plugins, and deletes what a crash left half made. */
  async load(): Promise<LoadedPlugins> {
    const names = await readdir(this.root).catch(none);
    const records: PluginRecord[] = [];
    const damaged: string[] = [];
    const removed = names.filter((name) => UNFINISHED.test(name));
    if (removed.length > 0) await this.workers.run('remove-trees', { paths: removed.map((at) => join(this.root, at)) });
    for (const name of names.filter((one) => ID.test(one))) {
      const record = (await readRecord(join(this.root, name, RECORD)).catch(() => undefined)) as
        | PluginRecord
        | undefined;
      if (record === undefined || record.id !== name) damaged.push(name);
      else {
        records.push(record);
        removed.push(...(await this.#removeOldTrees(record)));
      }
    }
    return { records, removed, damaged };
  }

  /** Returns the places of a plugin's files. */
  files({ id, tree }: Pick<PluginRecord, 'id' | 'tree'>): PluginFiles {
    const dir = join(this.root, id, tree);
    return {
      rootfs: join(dir, 'rootfs'),
      content: join(dir, 'content'),
      propagated: join(this.root, id, PROPAGATED),
    };
  }

  /** Makes an empty place for the files of a plugin. */
  async stage(): Promise<StagedPlugin> {
    const dir = join(this.root, `.new-${randomBytes(6).toString('hex')}`);
    const [rootfs, content] = [join(dir, 'rootfs'), join(dir, 'content')];
    await makeDirectories(this.root, { mode: 0o700 });
    await mkdir(dir, { mode: 0o700 });
    await mkdir(rootfs, { mode: 0o755 });
    await mkdir(content, { mode: 0o700 });
    return { dir, rootfs, content };
  }

  async discard({ dir }: StagedPlugin): Promise<void> {
    await this.workers.run('remove-trees', { paths: [dir] });
  }

  /** Makes a staged plugin an installed one; durable when the promise resolves. Returns its record. */
  async publish(staged: StagedPlugin, made: Omit<PluginRecord, 'id' | 'tree'>): Promise<PluginRecord> {
    const id = randomBytes(32).toString('hex');
    const tree = `tree-${randomBytes(6).toString('hex')}`;
    const record: PluginRecord = { ...made, id, tree };
    const home = join(this.root, `.new-${id}`);
    await mkdir(home, { mode: 0o700 });
    await mkdir(join(home, PROPAGATED), { mode: 0o755 });
    await rename(staged.dir, join(home, tree));
    await writeRecord(join(home, RECORD), record);
    await syncFileSystem(home);
    await rename(home, join(this.root, id));
    await syncDirectory(this.root);
    return record;
  }

  /** Replaces the files of a plugin by staged ones, with a record that tells of them. Returns the record. */
  async replace(staged: StagedPlugin, before: PluginRecord, made: Partial<PluginRecord>): Promise<PluginRecord> {
    const tree = `tree-${randomBytes(6).toString('hex')}`;
    const record: PluginRecord = { ...before, ...made, tree };
    await syncFileSystem(staged.dir);
    await rename(staged.dir, join(this.root, record.id, tree));
    await this.save(record);
    await this.#removeOldTrees(record);
    return record;
  }

  async save(record: PluginRecord): Promise<void> {
    await writeRecord(join(this.root, record.id, RECORD), record);
  }

  /** Removes a plugin: it is gone when the promise resolves, whatever happens after that. */
  async remove(id: string): Promise<void> {
    const trash = join(this.root, `.removed-${id}`);
    await rename(join(this.root, id), trash).catch((error: NodeJS.ErrnoException) => {
      if (error.code !== 'ENOENT') throw error;
    });
    await syncDirectory(this.root);
    await this.workers.run('remove-trees', { paths: [trash] });
  }

  async #removeOldTrees({ id, tree }: PluginRecord): Promise<string[]> {
    const names = await readdir(join(this.root, id));
    const old = names.filter((name) => TREE.test(name) && name !== tree).map((name) => join(id, name));
    if (old.length > 0) await this.workers.run('remove-trees', { paths: old.map((at) => join(this.root, at)) });
    return old;
  }
}

function none(error: NodeJS.ErrnoException): string[] {
  if (error.code === 'ENOENT') return [];
  throw error;
}
