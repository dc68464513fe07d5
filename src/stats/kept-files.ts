/**
 * Files of control groups that stay open from one reading to the next, in the thread that reads: finding and opening a
 * file takes the kernel three times as long as filling it. An open file keeps no group alive.
 */
import { closeSync, openSync, readSync } from 'node:fs';
import { openFileLimit } from '../sys/process/limits.js';
import { readKernelFile } from './kernel-file.js';

/** Followed containers are read once a second; many who ask for all do so twice or four times a minute. */
export const KEPT_MS = 40_000;
/** This is enough for some hundred containers; the files of others are opened for each reading. */
const MAX_FILES = 4000;
/** They are this part of the files that the daemon may have open, at most. */
const PART_OF_LIMIT = 1 / 4;
/** Each of these files is one record, of which the kernel gives as much at once as there is room for. */
const ROOM_BYTES = 64 * 1024;

interface Directory {
  readonly files: Map<string, number>;
  readAt: number;
}

export class KeptFiles {
  readonly #directories = new Map<string, Directory>();
  readonly #room = Buffer.allocUnsafeSlow(ROOM_BYTES);
  #count = 0;
  #clearedAt = 0;
  #roundAt = 0;

  constructor(
    private readonly now: () => number = () => performance.now(),
    private readonly maxFiles: number = Math.min(MAX_FILES, Math.floor(openFileLimit() * PART_OF_LIMIT)),
  ) {}

  /** So many files are open. */
  get count(): number {
    return this.#count;
  }

  /** Begins a round of readings: closes the files of directories that nobody has read of late. */
  begin(): void {
    const now = this.now();
    this.#roundAt = now;
    if (now - this.#clearedAt < KEPT_MS) return;
    this.#clearedAt = now;
    for (const [path, { readAt }] of this.#directories) if (now - readAt > KEPT_MS) this.#close(path);
  }

  /** Returns the text of a file; undefined when there is none, or the group has ended. */
  read(directory: string, name: string): string | undefined {
    const kept = this.#directories.get(directory);
    const fd = kept?.files.get(name);
    if (kept === undefined || fd === undefined) return this.#open(directory, name);
    try {
      const text = this.#textOf(fd);
      kept.readAt = this.#roundAt;
      return text ?? readKernelFile(`${directory}/${name}`);
    } catch {
      // The group has ended. Another one may be in its place, as when a container is started again.
      this.#close(directory);
      return this.#open(directory, name);
    }
  }

  #open(directory: string, name: string): string | undefined {
    const path = `${directory}/${name}`;
    if (this.#count >= this.maxFiles) return readKernelFile(path);
    let fd: number;
    try {
      fd = openSync(path, 'r');
    } catch {
      return undefined;
    }
    try {
      const text = this.#textOf(fd);
      this.#keep(directory, name, fd);
      return text ?? readKernelFile(path);
    } catch {
      closeSync(fd);
      return undefined;
    }
  }

  /** Returns undefined for a text that is longer than there is room for. */
  #textOf(fd: number): string | undefined {
    const length = readSync(fd, this.#room, 0, ROOM_BYTES, 0);
    return length === ROOM_BYTES ? undefined : this.#room.toString('latin1', 0, length);
  }

  #keep(directory: string, name: string, fd: number): void {
    const kept = this.#directories.get(directory) ?? { files: new Map<string, number>(), readAt: 0 };
    kept.files.set(name, fd);
    kept.readAt = this.#roundAt;
    this.#directories.set(directory, kept);
    this.#count++;
  }

  #close(directory: string): void {
    for (const fd of this.#directories.get(directory)?.files.values() ?? []) {
      closeSync(fd);
      this.#count--;
    }
    this.#directories.delete(directory);
  }
}
