/**
 * Remembers the digests of files in a directory that stays between builds, so that the next build reads only those that
 * have changed. Synchronous, for worker threads.
 *
 * A file is known by its inode, its size and its times. Its change time (ctime) is the kernel's: nobody can set it, and
 * a file that was written, or put in the place of another one, has a new one. So a digest is not kept while a change
 * could still get the same time, unless the daemon has made it of the bytes that it wrote into a new file. None is
 * believed after a restart of the machine, which may have torn files whose inodes are whole.
 *
 * The digests are in one file:
 *
 *   sha256 of all that follows, 32 bytes
 *   ID of the boot, 36 bytes
 *   a record for each file: inode, size, modification time and change time in ns (8 bytes each, little-endian), digest
 *
 * It replaces the older one by a rename. One that a crash has torn, or that is another's, does not match its hash and
 * counts as missing: files are read again then.
 */
import { createHash } from 'node:crypto';
import { type BigIntStats, readFileSync, renameSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { temporaryPath } from '../../sys/files/durable-file.js';

const HASH_BYTES = 32;
const BOOT_BYTES = 36;
export const RECORD_BYTES = 32 + HASH_BYTES;
/** In a directory with more files the others are read each time. The records are in memory meanwhile: 16 MB. */
export const MAX_RECORDS = 262_144;
/** Times of files are those of the kernel's last tick, which was at most 10 ms ago. */
const TICK_NS = 100_000_000n;
/** Some file systems keep whole seconds (ext4 with small inodes), or two of them. */
const COARSE_TICK_NS = 3_000_000_000n;
const NS_PER_MS = 1_000_000n;
const NS_PER_S = 1_000_000_000n;

export class KeptDigests {
  readonly #path: string;
  readonly #device: bigint;
  readonly #boot: Buffer;
  readonly #records = new Map<bigint, Buffer>();
  /** Those that this walk has seen. The others may be of files that are gone. */
  readonly #seen = new Set<bigint>();
  #isChanged = false;

  /**
   * @param path of the file with the digests, which may be missing.
   * @param device that the directory is on; files on others are not remembered.
   */
  constructor(path: string, device: bigint) {
    this.#path = path;
    this.#device = device;
    this.#boot = readFileSync('/proc/sys/kernel/random/boot_id').subarray(0, BOOT_BYTES);
    this.#load();
  }

  /** Returns the digest of a regular file that has not changed since. */
  find(stat: BigIntStats): Buffer | undefined {
    const record = stat.dev === this.#device ? this.#records.get(stat.ino) : undefined;
    if (record === undefined || !sameFile(record, stat)) return undefined;
    this.#seen.add(stat.ino);
    return record.subarray(RECORD_BYTES - HASH_BYTES);
  }

  /**
   * Remembers a digest.
   * @param stat was read from the open file before its content and its attributes.
   * @param beforeNs the time before `stat` was read.
   */
  note(stat: BigIntStats, beforeNs: bigint, digest: Buffer): void {
    if (stat.dev !== this.#device || !isSettled(stat.ctimeNs, beforeNs)) return;
    this.add(recordOf(stat, digest));
  }

  /** Remembers files by records that `recordOf` has made, one after the other. */
  add(records: Buffer): void {
    for (let at = 0; at + RECORD_BYTES <= records.length; at += RECORD_BYTES) {
      const inode = records.readBigUInt64LE(at);
      this.#records.set(inode, records.subarray(at, at + RECORD_BYTES));
      this.#seen.add(inode);
      this.#isChanged = true;
    }
  }

  /** Writes what is new. A failure is nobody's: the files are read again next time. */
  save(): void {
    if (!this.#isChanged) return;
    const inodes = [...this.#records.keys()];
    const kept = inodes.length > MAX_RECORDS ? inodes.filter((inode) => this.#seen.has(inode)) : inodes;
    const records = kept.slice(0, MAX_RECORDS).flatMap((inode) => this.#records.get(inode) ?? []);
    const body = Buffer.concat([this.#boot, ...records]);
    // Steps of one build may do this at the same time: each has a file of its own, and the last one stays.
    const passing = temporaryPath(this.#path);
    try {
      writeFileSync(passing, Buffer.concat([hashOf(body), body]), { flag: 'wx', mode: 0o600 });
      renameSync(passing, this.#path);
    } catch {
      rmSync(passing, { force: true });
    }
  }

  #load(): void {
    const bytes = readWhole(this.#path);
    const body = bytes?.subarray(HASH_BYTES);
    if (bytes === undefined || body === undefined || !bytes.subarray(0, HASH_BYTES).equals(hashOf(body))) return;
    if (!body.subarray(0, BOOT_BYTES).equals(this.#boot)) return;
    for (let at = BOOT_BYTES; at + RECORD_BYTES <= body.length; at += RECORD_BYTES)
      this.#records.set(body.readBigUInt64LE(at), body.subarray(at, at + RECORD_BYTES));
  }
}

export interface NotedDigests {
  /** The file with the digests. */
  readonly path: string;
  /** The directory that they are of. */
  readonly root: string;
  readonly records: readonly Uint8Array[];
}

/** Worker task: remembers files that the daemon itself has just written. */
export function noteDigests({ path, root, records }: NotedDigests): void {
  const kept = new KeptDigests(path, statSync(root, { bigint: true }).dev);
  for (const some of records) kept.add(Buffer.from(some.buffer, some.byteOffset, some.byteLength));
  kept.save();
}

/** Returns the record of a file. */
export function recordOf(stat: BigIntStats, digest: Buffer): Buffer {
  const record = Buffer.allocUnsafe(RECORD_BYTES);
  numbersOf(stat).forEach((number, at) => record.writeBigUInt64LE(BigInt.asUintN(64, number), at * 8));
  digest.copy(record, RECORD_BYTES - HASH_BYTES);
  return record;
}

/** The time in ns since 1970 by the clock that gives files their times. */
export function nowNs(): bigint {
  return BigInt(Date.now()) * NS_PER_MS;
}

/** Returns for how many ms, rounded up, a change might still give a file this change time; not above 0: no more. */
export function unsettledMs(ctimeNs: bigint): number {
  return Number((settledNs(ctimeNs) - nowNs()) / NS_PER_MS) + 1;
}

/** Tells whether a change from now on gives a file another change time than this one. */
function isSettled(ctimeNs: bigint, now: bigint): boolean {
  return settledNs(ctimeNs) < now;
}

function settledNs(ctimeNs: bigint): bigint {
  return ctimeNs + (ctimeNs % NS_PER_S === 0n ? COARSE_TICK_NS : TICK_NS);
}

function numbersOf({ ino, size, mtimeNs, ctimeNs }: BigIntStats): readonly bigint[] {
  return [ino, size, mtimeNs, ctimeNs];
}

function sameFile(record: Buffer, stat: BigIntStats): boolean {
  return numbersOf(stat).every((number, at) => record.readBigUInt64LE(at * 8) === BigInt.asUintN(64, number));
}

function hashOf(bytes: Buffer): Buffer {
  return createHash('sha256').update(bytes).digest();
}

function readWhole(path: string): Buffer | undefined {
  try {
    return readFileSync(path);
  } catch {
    return undefined;
  }
}
