/**
 * Files that have their names before they are on the disk. For those that nobody needs after a crash of the machine
 * until something else is written that needs them: that waits for `sync`. Many of them share a sync of their directory.
 */
import { open, rename, rm, writeFile } from 'node:fs/promises';
import { dirname } from 'node:path';
import { inLanes } from '../../text/in-lanes.js';
import { syncDirectory, temporaryPath } from './durable-file.js';

/** A sync begins so long after the first file that it is for. */
const DELAY_MS = 100;

export class LateSyncs {
  /** Paths of files that no sync is under way for. */
  #waiting = new Set<string>();
  #running: Promise<void> = Promise.resolve();
  #timer: NodeJS.Timeout | undefined;

  /** @param failed is told of a sync that nobody waits for. */
  constructor(private readonly failed: (error: unknown) => void) {}

  /**
   * Makes a file, with mode 0600, that is there as a whole for others when the promise resolves, also when this process
   * is killed then. After a crash of the machine it may be there, not there, or damaged.
   */
  async write(path: string, data: string | Uint8Array): Promise<void> {
    const temp = temporaryPath(path);
    try {
      await writeFile(temp, data, { mode: 0o600, flag: 'wx' });
      await rename(temp, path);
    } catch (error) {
      await rm(temp, { force: true });
      throw error;
    }
    this.#waiting.add(path);
    this.#timer ??= setTimeout(() => void this.sync().catch(this.failed), DELAY_MS).unref();
  }

  /** Resolves when all that was written before is on the disk, but for what was removed meanwhile. */
  sync(): Promise<void> {
    clearTimeout(this.#timer);
    this.#timer = undefined;
    if (this.#waiting.size > 0) {
      const paths = this.#waiting;
      this.#waiting = new Set();
      this.#running = Promise.all([this.#running.catch(() => undefined), this.#syncAll(paths)]).then(() => undefined);
      this.#running.catch(() => undefined);
    }
    return this.#running;
  }

  async #syncAll(paths: Set<string>): Promise<void> {
    try {
      await inLanes(paths, syncFile);
      await inLanes(new Set([...paths].map((path) => dirname(path))), syncDirectory);
    } catch (error) {
      for (const path of paths) this.#waiting.add(path);
      throw error;
    }
  }
}

async function syncFile(path: string): Promise<void> {
  let file;
  try {
    file = await open(path, 'r');
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'ENOENT') return;
    throw error;
  }
  try {
    await file.sync();
  } finally {
    await file.close();
  }
}
