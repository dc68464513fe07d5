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
/** After this interval the reserve is filled again if there is room. */
const REFILL_MS = 30_000;

/** Runs a write; if the disk is full, the write gets space of the reserve. */
export type Urgent = <T>(write: () => Promise<T>) => Promise<T>;

export class Reserve {
  readonly #path: string;
  #bytes = 0;
  #timer: NodeJS.Timeout | undefined;

  constructor(private readonly directory: string) {
    this.#path = join(directory, NAME);
  }

  /** Gives up the whole reserve when the daemon starts on a full disk. Returns whether that was necessary. */
  async open(): Promise<boolean> {
    this.#bytes = await stat(this.#path).then(
      ({ size }) => size,
      () => 0,
    );
    if ((await this.#available()) >= FULL_BYTES || this.#bytes === 0) return false;
    await this.#shrink(0);
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

  /** Makes a write that cannot wait for room on the disk, such as the record of a removal or an end. */
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

  /** On a disk that is nearly full the reserve takes half of the free space, because the next start needs it most. */
  async #refill(): Promise<void> {
    if (this.#bytes >= FULL_BYTES) return;
    try {
      const available = await this.#available();
      const room = available > 4 * FULL_BYTES ? available : Math.floor(available / 2);
      const wanted = Math.min(FULL_BYTES, this.#bytes + room - (room % PIECE_BYTES));
      if (wanted <= this.#bytes) return;
      const file = await open(this.#path, 'a', 0o600);
      try {
        // File systems that compress do not shrink these bytes.
        await file.writeFile(randomBytes(wanted - this.#bytes));
        await file.sync();
        this.#bytes = (await file.stat()).size;
      } finally {
        await file.close();
      }
    } catch {
      // Another program took the space first; this is tried again later.
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
