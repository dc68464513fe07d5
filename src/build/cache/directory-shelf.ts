/** The directories that builds write to and that stay between builds, below one root. Each is named by its record. */
import { closeSync, openSync } from 'node:fs';
import { chown, mkdir, readdir, rename, rm } from 'node:fs/promises';
import { join } from 'node:path';
import type { Owner } from '../../ports/id-maps.js';
import { syncDirectory } from '../../sys/files/durable-file.js';
import { markTopDirectory } from '../../sys/files/inode.js';
import type { WorkerPool } from '../../workers/pool.js';
import { isRecordId } from './stored-record.js';

/** Names of directories that are being filled or removed; the inventory knows them. */
const NEW = '.new-';
const REMOVED = '.removed-';

export interface DirectoryShelfDeps {
  readonly root: string;
  /** Directory for digests of files in these directories. */
  readonly digests: string;
  readonly pool: Pick<WorkerPool, 'run'>;
  /** Owns new directories. */
  readonly owner: Owner;
}

export class DirectoryShelf {
  constructor(private readonly deps: DirectoryShelfDeps) {}

  path(id: string): string {
    return join(this.deps.root, id);
  }

  /** Returns the file for digests of the files in a directory. */
  digests(id: string): string {
    return join(this.deps.digests, id);
  }

  /** Removes what is no directory of these records. @returns the IDs that are there, and what was removed. */
  async load(ids: ReadonlySet<string>): Promise<{ readonly present: Set<string>; readonly removed: string[] }> {
    const present = new Set<string>();
    const removed: string[] = [];
    const leftovers: string[] = [];
    spreadDirectories(this.deps.root);
    for (const name of await readdir(this.deps.root)) {
      if (ids.has(name)) present.add(name);
      else if (name.startsWith(REMOVED)) leftovers.push(this.path(name));
      else if (name.startsWith(NEW) || isRecordId(name)) {
        leftovers.push(await this.#takeAway(name));
        removed.push(`directory ${name}: no record has it`);
      }
    }
    for (const name of await readdir(this.deps.digests))
      if (!present.has(name)) await rm(this.digests(name), { force: true });
    // They may be large, and nobody waits for them.
    void this.#delete(leftovers);
    return { present, removed };
  }

  /** Makes a directory, which is in its place when it is filled. @param fill may fail: nothing stays then. */
  async make(id: string, fill: (directory: string) => Promise<void> = () => Promise.resolve()): Promise<string> {
    const { owner, root } = this.deps;
    const passing = join(root, `${NEW}${id}`);
    try {
      await mkdir(passing, { mode: 0o755 });
      if (owner.uid !== 0 || owner.gid !== 0) await chown(passing, owner.uid, owner.gid);
      await fill(passing);
      await rename(passing, this.path(id));
    } catch (error) {
      await rm(passing, { recursive: true, force: true });
      throw error;
    }
    await syncDirectory(root);
    return this.path(id);
  }

  /** Takes directories away at once, and deletes what is in them. */
  async remove(ids: readonly string[]): Promise<void> {
    const paths: string[] = [];
    for (const id of ids) {
      paths.push(await this.#takeAway(id));
      await rm(this.digests(id), { force: true });
    }
    await this.#delete(paths);
  }

  /** Returns the bytes of the files in a directory. */
  size(id: string): Promise<number> {
    return this.deps.pool.run('tree-size', { path: this.path(id) });
  }

  async #takeAway(name: string): Promise<string> {
    const path = this.path(`${REMOVED}${name.replace(NEW, '')}`);
    try {
      await rename(this.path(name), path);
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code !== 'ENOENT') throw error;
    }
    return path;
  }

  /** The next start tries again what is left. */
  async #delete(paths: readonly string[]): Promise<void> {
    if (paths.length > 0) await this.deps.pool.run('remove-trees', { paths }).catch(() => undefined);
  }
}

/**
 * Spreads new directories over the disk. ext4 would put one where another was just deleted, and search there past every
 * inode that was freed in the last minutes: a context of many files took ten times as long after a prune.
 */
function spreadDirectories(root: string): void {
  const fd = openSync(root, 'r');
  try {
    markTopDirectory(fd);
  } finally {
    closeSync(fd);
  }
}
