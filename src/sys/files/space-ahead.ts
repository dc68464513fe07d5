/**
 * Asks the file system for the space of a large file ahead of its bytes, many blocks at a time. For each block of 4 KiB
 * that is written without that, ext4 reserves space and notes that it has: nearly half of the time of a write.
 */
import { fstatSync, ftruncateSync, statfsSync } from 'node:fs';
import { libc } from '../ffi/libc.js';

// linux/magic.h
const EXT4_MAGIC = 0xef53;
const OVERLAY_MAGIC = 0x79_4c_76_30;
// linux/falloc.h
const FALLOC_FL_KEEP_SIZE = 1;

/** Space is asked for when so much data has come: small files are written as fast without. */
const LEAST_BYTES = 256 * 1024;
const MOST_AHEAD_BYTES = 8 * 1024 * 1024;

const fallocate = libc.func<[fd: number, mode: number, from: number, bytes: number]>(
  'int fallocate(int fd, int mode, int64_t from, int64_t bytes)',
);

/** Tells whether a file of this length ever gets space ahead. */
export const isLarge = (sizeBytes: number): boolean => sizeBytes > 2 * LEAST_BYTES;

/**
 * Tells whether the file system of a path is one that gains by it. Others lose: tmpfs clears the memory that is asked
 * for ahead, and btrfs does not compress what comes there. @throws the errno error of the file system.
 */
export const gainsBySpace = (path: string): boolean => statfsSync(path).type === EXT4_MAGIC;

export class SpaceAhead {
  #isFit: boolean | undefined;
  /** Data begins here, behind the last hole. */
  #dataFrom = 0;
  #dataTo = 0;
  #spaceTo = 0;

  /**
   * @param fd a file that is written front to back, perhaps with holes.
   * @param sizeBytes the length that it will have: no space is asked for behind it.
   * @param upperGains what `gainsBySpace` says of the directory that has the file, if it is one of an overlay.
   */
  constructor(
    private readonly fd: number,
    private readonly sizeBytes: number,
    private readonly upperGains = false,
  ) {}

  /**
   * Tells what is written next. The space ahead is no more than the data before it that has no hole, and is given back
   * where a hole begins. Where the file system refuses it, the write does without and tells what is wrong.
   */
  willWrite(from: number, to: number): void {
    if (from !== this.#dataTo) {
      this.giveBack();
      this.#dataFrom = from;
    }
    this.#dataTo = to;
    const data = from - this.#dataFrom;
    if (to <= this.#spaceTo || data < LEAST_BYTES || this.#isFit === false) return;
    const spaceTo = Math.min(from + Math.min(data, MOST_AHEAD_BYTES), this.sizeBytes);
    if (spaceTo <= to) return;
    this.#isFit ??= this.#gains();
    if (!this.#isFit) return;
    this.#isFit = fallocate(this.fd, FALLOC_FL_KEEP_SIZE, from, spaceTo - from) === 0;
    if (this.#isFit) this.#spaceTo = spaceTo;
  }

  #gains(): boolean {
    const { type } = statfsSync(`/proc/self/fd/${this.fd}`);
    return type === EXT4_MAGIC || (type === OVERLAY_MAGIC && this.upperGains);
  }

  /** Gives back the space behind the data, where the file ends so far. */
  giveBack(): void {
    if (this.#spaceTo <= this.#dataTo) return;
    this.#spaceTo = this.#dataTo;
    try {
      ftruncateSync(this.fd, fstatSync(this.fd).size);
    } catch {
      // A file system that fails tells so to the next write.
    }
  }
}
