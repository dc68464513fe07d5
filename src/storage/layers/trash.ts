/** Fast deletion: trees are renamed into the trash at once and deleted later, unless the disk is short of space. */
import { readdir, rename, statfs } from 'node:fs/promises';
import { join } from 'node:path';
import type { Logger } from '../../ports/logger.js';
import { randomName } from '../random-name.js';

/** Many small trees are deleted at once: together they may be worth the start of a thread. */
const DELAY_MS = 1_000;
/** With less than this free, somebody may have removed a tree for its space, and need that next. */
const SHORT_BYTES = 1 << 30;

export class Trash {
  #timer: NodeJS.Timeout | undefined;
  #emptying: Promise<void> = Promise.resolve();
  /** A deletion that has not begun: it deletes what comes until then, too. */
  #next: Promise<void> | undefined;

  constructor(
    private readonly directory: string,
    /** Deletes trees, away from the main thread. */
    private readonly remove: (paths: readonly string[]) => Promise<void>,
    private readonly log: Logger,
  ) {}

  /**
   * Takes a tree out of its place. Resolves false when there is none. The deletion follows in its own time, but on a
   * disk that is short of space this waits for it.
   */
  async take(path: string): Promise<boolean> {
    const isTaken = await this.put(path);
    if (isTaken) await this.relieve();
    return isTaken;
  }

  /** Does the same, but never waits for the deletion: who puts many trees here calls `relieve` after the last. */
  async put(path: string): Promise<boolean> {
    try {
      await rename(path, join(this.directory, randomName()));
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code === 'ENOENT') return false;
      // A full disk may have no room for the new name either.
      await this.remove([path]);
      return true;
    }
    this.#timer ??= setTimeout(() => void this.empty(), DELAY_MS).unref();
    return true;
  }

  /** Waits for the deletion of what is here if the disk is short of space. */
  async relieve(): Promise<void> {
    const space = await statfs(this.directory).catch(() => undefined); // the trees are gone whatever it says
    if (space && space.bavail * space.bsize < SHORT_BYTES) await this.empty();
  }

  /** Deletes what is there now. Failures are logged, and what is left is tried again with the next deletion. */
  empty(): Promise<void> {
    clearTimeout(this.#timer);
    this.#timer = undefined;
    this.#next ??= this.#emptying = this.#emptying.then(() => {
      this.#next = undefined;
      return this.#deleteAll();
    });
    return this.#next;
  }

  async #deleteAll(): Promise<void> {
    try {
      const names = await readdir(this.directory);
      if (names.length > 0) await this.remove(names.map((name) => join(this.directory, name)));
    } catch (error) {
      this.log.warn({ err: error, dir: this.directory }, 'trash not emptied');
    }
  }
}
