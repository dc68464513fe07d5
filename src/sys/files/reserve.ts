/**
 * Keeps a file that takes some space of a disk, and gives the space up when the disk is full. Without any space the
 * daemon cannot start, and a removal, which makes room, must itself be written down.
 */
import { randomBytes } from 'node:crypto';
import { open, stat, statfs } from 'node:fs/promises';
import { join } from 'node:path';

const NAME = 'reserve';
const FULL_BYTES = 2 << 20;
/** One urgent write gets so many bytes. */
const PIECE_BYTES = 64 << 10;
/** This part of the reserve stays when the daemon starts on a full disk. */
const KEPT_AT_START = 1 / 4;
/** After this interval the reserve is filled again if there is room. */
const REFILL_MS = 30_000;

/** Runs a write; if the disk is full, the write gets space of the reserve. */
export type Urgent = <T>(write: () => Promise<T>) => Promise<T>;

export class Reserve {
  readonly #path: string;
  #bytes = 0;
  /** Bytes of the reserve that were given up, and are taken back when they are free. */
  #due = 0;
  #last: Promise<unknown> = Promise.resolve();
  #timer: NodeJS.Timeout | undefined;

  constructor(private readonly directory: string) {
    this.#path = join(directory, NAME);
  }

  /**
   * Gives up most of the reserve when the daemon starts on a full disk; the rest is for removals, also if others take
   * what is given up. Returns whether that was necessary.
   */
  async open(): Promise<boolean> {
    this.#bytes = await stat(this.#path).then(
      ({ size }) => size,
      () => 0,
    );
    this.#due = this.#bytes;
    if ((await this.#available()) >= FULL_BYTES || this.#bytes === 0) return false;
    await this.#shrink(Math.floor(this.#bytes * KEPT_AT_START));
    return true;
  }

  /** Makes the reserve, as far as the disk has room, and keeps it from now on. */
  keep(): void {
    void this.#refill();
    this.#timer = setInterval(() => void this.#refill(), REFILL_MS).unref();
  }

  close(): Promise<void> {
    clearInterval(this.#timer);
    return this.#refill();
  }

  /**
   * Makes a write that cannot wait for room on the disk, such as the record of a removal or an end. A record replaces
   * the one before, so most of the space is free again afterwards, and taken back before others use it up.
   */
  readonly urgent: Urgent = async (write) => {
    let isLent = false;
    try {
      for (;;) {
        try {
          return await write();
        } catch (error) {
          const { code } = error as NodeJS.ErrnoException;
          if ((code !== 'ENOSPC' && code !== 'EDQUOT') || this.#bytes === 0) throw error;
          isLent = true;
          // Without its file there is nothing to give.
          const shrink = (): Promise<void> => this.#shrink(Math.max(0, this.#bytes - PIECE_BYTES));
          await this.#alone(shrink).catch(() => (this.#bytes = 0));
        }
      }
    } finally {
      if (isLent) await this.#alone(() => this.#grow(this.#due)).catch(() => undefined);
    }
  };

  /**
   * Takes back what was given up. Beyond that, on a disk that is nearly full, the reserve takes half of the free space,
   * because the next start needs it most.
   */
  async #refill(): Promise<void> {
    const refilled = this.#alone(async () => {
      await this.#grow(this.#due);
      const available = await this.#available();
      const room = available > 4 * FULL_BYTES ? available : Math.floor(available / 2);
      await this.#grow(this.#bytes + room - (room % PIECE_BYTES));
    });
    await refilled.catch(() => undefined);
  }

  /** Makes the reserve larger, as far as there is room; what is missing is tried again later. */
  async #grow(wanted: number): Promise<void> {
    const missing = Math.min(FULL_BYTES, wanted) - this.#bytes;
    if (missing <= 0) return;
    const file = await open(this.#path, 'a', 0o600);
    try {
      // File systems that compress do not shrink these bytes.
      await file.writeFile(randomBytes(missing)).catch(() => undefined);
      await file.sync();
      this.#bytes = (await file.stat()).size;
      this.#due = Math.max(this.#due, this.#bytes);
    } finally {
      await file.close();
    }
  }

  /** Changes of the file come one after another. */
  #alone(change: () => Promise<void>): Promise<void> {
    const done = this.#last.then(change);
    this.#last = done.catch(() => undefined);
    return done;
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
