/**
 * Counts the bytes that trees take on the disk, as du(1) does: in blocks, a file with several names once, and within
 * one file system. Synchronous, for worker threads.
 */
import { existsSync, type BigIntStats } from 'node:fs';
import { dirname } from 'node:path';
import { toBytePath } from '../storage/byte-path.js';
import type { BlockCounting } from '../storage/drivers/driver.js';
import { STORES } from '../storage/drivers/index.js';
import { statOf } from '../storage/stat-of.js';
import { walkTree, type WalkedEntry } from '../storage/walk-tree.js';

const BLOCK_BYTES = 512n;

export class BlockCounter {
  readonly #seen = new Set<bigint>();

  /**
   * @param device only files on this device count.
   * @param apart what is in the directories with these inode numbers does not.
   */
  constructor(
    private readonly device: bigint,
    private readonly apart: ReadonlySet<bigint> = new Set(),
  ) {}

  /** Counts one file or directory, without what is in it. */
  own({ blocks }: BigIntStats): number {
    return Number(blocks * BLOCK_BYTES);
  }

  /** Counts a path (a byte string) that has these attributes, and everything below it. */
  tree(path: string, stat: BigIntStats): number {
    let total = this.#count(stat);
    if (stat.isDirectory() && stat.dev === this.device)
      for (const entry of this.#walk(path)) total += this.#count(entry.stat);
    return Number(total);
  }

  *#walk(path: string): Generator<WalkedEntry> {
    try {
      yield* walkTree(path, {
        enters: ({ dev, ino }) => dev === this.device && !this.apart.has(ino),
        tooDeep: 'left',
      });
    } catch (error) {
      // The entry was removed after it was listed.
      if ((error as NodeJS.ErrnoException).code !== 'ENOENT') throw error;
    }
  }

  #count(stat: BigIntStats): bigint {
    if (stat.dev !== this.device) return 0n;
    if (stat.nlink > 1n && !stat.isDirectory()) {
      if (this.#seen.has(stat.ino)) return 0n;
      this.#seen.add(stat.ino);
    }
    return stat.blocks * BLOCK_BYTES;
  }
}

/** Returns the way to count what a walk does not find in the store of a driver, if it has one. */
export function countingOf(driver: string): BlockCounting | undefined {
  return STORES.find(({ name }) => name === driver)?.counting;
}

/** Worker task: returns the bytes on the disk of all paths together; a path that does not exist has none. */
export function blockSize({ paths, driver }: { readonly paths: readonly string[]; readonly driver?: string }): number {
  const counting = driver === undefined ? undefined : countingOf(driver);
  let total = 0;
  for (const path of counting ? paths.filter((at) => existsSync(at)) : []) {
    counting?.prepare(dirname(path));
    total += counting?.own(path) ?? 0;
  }
  for (const path of paths.map(toBytePath)) {
    const stat = statOf(path);
    if (stat) total += new BlockCounter(stat.dev).tree(path, stat);
  }
  return total;
}
