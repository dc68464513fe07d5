/**
 * Reads many small files and links, one after the other or some at a time. What the kernel has in memory is read by
 * this thread, for a fifth of the processor time that a read in the thread pool costs, and others have their turn
 * between. When the disk has to be asked, the next reads are left to the pool, which has several under way.
 */
import { lstatSync, readFileSync, readlinkSync } from 'node:fs';
import { readFile, readlink } from 'node:fs/promises';
import { turn } from '../../text/turns.js';

/** A read from memory takes a hundredth of it. */
const QUICK_MS = 1;
/** So many follow a slow one: that it was slow may be the fault of another program that had the processor. */
const LEFT_TO_POOL = 32;

export class QuickReader {
  /** So many reads are for the pool. */
  #left = 0;

  /** @param isQuick tells whether what a read took is the time of memory. */
  constructor(private readonly isQuick: (ms: number) => boolean = (ms) => ms < QUICK_MS) {}

  /** Returns a file's text. @throws the errno error of the file system. */
  text(path: string): Promise<string> {
    return this.read(
      () => readFileSync(path, 'utf8'),
      () => readFile(path, 'utf8'),
    );
  }

  /** Returns a link's text; undefined when there is no link. @throws the errno error of the file system. */
  link(path: string): Promise<string | undefined> {
    return this.read(
      // An error costs three times as much as a look.
      () => (lstatSync(path, { throwIfNoEntry: false })?.isSymbolicLink() ? readlinkSync(path) : undefined),
      () => readlink(path).catch(noLink),
    );
  }

  /** Reads in one of two ways: `now` on this thread, for what is mostly in memory, or `soon` in the pool. */
  async read<T>(now: () => T, soon: () => Promise<T>): Promise<T> {
    if (this.#left > 0) {
      this.#left -= 1;
      return soon();
    }
    await turn();
    const begin = performance.now();
    try {
      return now();
    } finally {
      if (!this.isQuick(performance.now() - begin)) this.#left = LEFT_TO_POOL;
    }
  }
}

function noLink(error: NodeJS.ErrnoException): undefined {
  if (error.code !== 'ENOENT' && error.code !== 'EINVAL') throw error;
  return undefined;
}
