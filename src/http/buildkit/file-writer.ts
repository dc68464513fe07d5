/** Writes a file that arrives in pieces. Its time is set when it is complete, which tells it from a broken one. */
import { fchmodSync, fchownSync } from 'node:fs';
import { open, type FileHandle } from 'node:fs/promises';
import type { FileBatch, SmallFile } from '../../build/files/write-files.js';
import { setOpenFileTimes } from '../../sys/files/inode.js';
import { permissionsOf, splitTime } from './file-stat.js';
import { JoinedPieces } from './joined-pieces.js';
import type { Stat } from './proto/gen/session_pb.js';

/** Pieces up to this size are joined before they are written; a file that is in memory has less. */
export const JOINED_BYTES = 256 * 1024;

export class FileWriter {
  readonly #path: string;
  readonly #stat: Stat;
  #file: FileHandle | undefined;
  readonly #held = new JoinedPieces();

  /** @param path must be free, in a directory that nobody else changes. */
  constructor(path: string, stat: Stat) {
    this.#path = path;
    this.#stat = stat;
  }

  /** Returns nothing when more may be written at once, else what is to be waited for. */
  write(piece: Uint8Array): Promise<void> | undefined {
    this.#held.push(piece);
    return this.#held.length >= JOINED_BYTES ? this.#flush() : undefined;
  }

  async end(): Promise<void> {
    await this.#flush();
    const file = this.#file;
    if (file === undefined) return;
    const { uid, gid, mode, modTime } = this.#stat;
    if (uid !== 0 || gid !== 0) fchownSync(file.fd, uid, gid);
    fchmodSync(file.fd, permissionsOf(mode));
    setOpenFileTimes(file.fd, ...splitTime(modTime));
    this.#file = undefined;
    await file.close();
  }

  /** Nothing of it is on the disk yet. */
  get isInMemory(): boolean {
    return this.#file === undefined;
  }

  /** Bytes that are in memory until `end`. */
  get heldBytes(): number {
    return this.#held.length;
  }

  /**
   * Moves the bytes of a file that is in memory to a place in that of a batch. Where they came in, a wait for the rest
   * of the batch would make old objects of them, which are collected with all others.
   */
  moveTo(memory: SharedArrayBuffer, at: number): void {
    this.#held.moveTo(Buffer.from(memory, at, this.heldBytes));
  }

  /**
   * Returns files that are in memory, for a thread that writes them in the place of `end`.
   * @param memory they were moved there, one after the other.
   * @param isDigested their digests are wanted.
   */
  static batch(files: readonly FileWriter[], memory: SharedArrayBuffer, isDigested: boolean): FileBatch {
    return { files: files.map((file) => file.#description()), bytes: new Uint8Array(memory), isDigested };
  }

  #description(): SmallFile {
    const { uid, gid, mode, modTime } = this.#stat;
    const [path, sizeBytes] = [this.#path, this.heldBytes];
    return { path, uid, gid, permissions: permissionsOf(mode), time: splitTime(modTime), sizeBytes };
  }

  /** Leaves the file as it is, without the time that would make it complete. */
  async abandon(): Promise<void> {
    await this.#file?.close().catch(() => undefined);
    this.#file = undefined;
  }

  async #flush(): Promise<void> {
    this.#file ??= await open(this.#path, 'wx', 0o600);
    if (this.heldBytes === 0) return;
    await this.#file.writeFile(this.#held.view());
    this.#held.clear();
  }
}
