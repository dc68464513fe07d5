/**
 * A file that takes some space of a disk and gives it up when the disk is full: without any the daemon cannot start, and
 * what makes room (a removal) must itself be written down.
 */
import { randomBytes } from 'node:crypto';
import { open, stat, statfs } from 'node:fs/promises';
import { join } from 'node:path';

const NAME = 'reserve';
const FULL_BYTES = 2 << 20;
/** What one write that cannot wait is given. */
const PIECE_BYTES = 64 << 10;
/** How often is looked whether there is room again. */
const REFILL_MS = 30_000;

/** Runs a write; on a full disk it is given room. */
export type Urgent = <T>(write: () => Promise<T>) => Promise<T>;

export class Reserve {
  readonly #path: string;
  #bytes = 0;
  #timer: NodeJS.Timeout | undefined;

  constructor(private readonly directory: string) {
    this.#path = join(directory, NAME);
  }

  /** Gives all of it to a daemon that starts on a disk without room. Returns whether it had to. */
  async open(): Promise<boolean> {
    this.#bytes = await stat(this.#path).then(({ size }) => size, () => 0);
    if ((await this.#available()) >= FULL_BYTES || this.#bytes === 0) return false;
    await this.#shrink(0);
    return true;
  }

  /** From now on it is there, as far as the disk has room. */
  keep(): void {
    void this.#refill();
    this.#timer = setInterval(() => void this.#refill(), REFILL_MS).unref();
  }

  close(): Promise<void> {
    clearInterval(this.#timer);
    return this.#refill();
  }

  /** Writes what cannot wait for room on the disk: that something is gone, or has ended. */
  readonly urgent: Urgent = async (write) => {
    for (;;) {
      try {
        return await write();
      } catch (error) {
        const { code } = error as NodeJS.ErrnoException;
        if ((code !== 'ENOSPC' && code !== 'EDQUOT') || this.#bytes === 0) throw error;
        await this.#shrink(Math.max(0, this.#bytes - PIECE_BYTES));
      }
    }
  };

  /** On a disk that is nearly full it takes half of what is left: the next start needs it more than anybody else. */
  async #refill(): Promise<void> {
    if (this.#bytes >= FULL_BYTES) return;
    try {
      const available = await this.#available();
      const room = available > 4 * FULL_BYTES ? available : Math.floor(available / 2);
      const wanted = Math.min(FULL_BYTES, this.#bytes + room - (room % PIECE_BYTES));
      if (wanted <= this.#bytes) return;
      const file = await open(this.#path, 'a', 0o600);
      try {
        // Such bytes take their space on file systems that compress, too.
        await file.writeFile(randomBytes(wanted - this.#bytes));
        await file.sync();
        this.#bytes = (await file.stat()).size;
      } finally {
        await file.close();
      }
    } catch {
      // Somebody else was faster; it is tried again.
    }
  }

  async #shrink(bytes: number): Promise<void> {
    const file = await open(this.#path, 'r+');
    try {
      await file.truncate(bytes);
      this.#bytes = bytes;
    } finally {
      await file.close();
    }
  }

  async #available(): Promise<number> {
    const { bavail, bsize } = await statfs(this.directory);
    return bavail * bsize;
  }
}
