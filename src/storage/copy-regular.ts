/** Copies small regular files, as most are, with few system calls. Synchronous, for worker threads. */
import { closeSync, constants, fchmodSync, fchownSync, fstatSync, openSync, readSync, writeSync } from 'node:fs';
import type { BigIntStats } from 'node:fs';
import { closeFd } from '../sys/files/fd.js';
import { isInMemoryOnly, shareContent } from '../sys/files/inode.js';
import { quickOpen } from '../sys/files/quick-stat.js';
import { fsPath } from './byte-path.js';
import { openStill, requireRegular } from './open-regular.js';

/** Larger files are copied by the kernel. */
export const SMALL_BYTES = 256 * 1024;
/** Larger files are written and shared after all, as memory may not have room for both. */
const IN_MEMORY_BYTES = 4 * 1024 * 1024;
// One byte more tells that a file has grown meanwhile.
const content = Buffer.allocUnsafeSlow(SMALL_BYTES + 1);

const READ = constants.O_RDONLY | constants.O_NOFOLLOW | constants.O_NONBLOCK;
const CREATE = constants.O_WRONLY | constants.O_CREAT | constants.O_EXCL;
const PERMISSIONS = 0o777;

/**
 * Pairs of file systems, as this thread has found, between which content cannot be shared: to ask for each file costs
 * more than to copy many of them.
 */
const apart = new Set<string>();

/** The owner of a file, and its permissions with the bits for setuid, setgid and sticky. */
export interface Look {
  readonly uid: number;
  readonly gid: number;
  readonly mode: number;
}

/** Returns what a file looks like. */
export function lookOf({ uid, gid, mode }: BigIntStats): Look {
  return { uid: Number(uid), gid: Number(gid), mode: Number(mode & 0o7777n) };
}

/** A regular file, as it was when somebody looked. */
export interface SeenFile {
  /** Byte string. */
  readonly at: string;
  readonly stat: BigIntStats;
  /** Nobody changes the tree, so the file is still there. */
  readonly isStill: boolean;
}

/**
 * Makes a file at a free name with the content of a regular one; shares the blocks if the file system can. `finish`
 * gets its descriptor before it is closed, and the content, which is valid until the next call. Returns false when
 * nothing was made, because the file is no small regular one (any more).
 */
export function copySmall(
  { at, stat, isStill }: SeenFile,
  to: string,
  look: Look,
  finish: (fd: number, content: Buffer) => void,
): boolean {
  if (stat.size > BigInt(SMALL_BYTES)) return false;
  const { fd: source } = isStill ? openStill(at, stat) : requireRegular(at);
  try {
    const bytes = readSync(source, content, 0, SMALL_BYTES + 1, 0);
    if (bytes > SMALL_BYTES) return false;
    const target = openSync(fsPath(to), CREATE, look.mode & PERMISSIONS);
    try {
      const made = fstatSync(target);
      if (bytes > 0 && !share(source, target, stat.dev, made.dev)) writeWhole(target, bytes);
      dress(target, look, made);
      finish(target, content.subarray(0, bytes));
    } finally {
      closeSync(target);
    }
    return true;
  } finally {
    closeSync(source);
  }
}

/**
 * Does the same for a file that nobody else knows and that is deleted when it was copied. To share the blocks of one
 * that is in memory only would write it to the disk at once, and wait for that, file by file: such a file is written
 * again. Returns false when nothing was made: for large files and all that is no file.
 */
export function copyPassing(from: string, stat: BigIntStats, to: string, finish: (fd: number) => void): boolean {
  if (!stat.isFile() || stat.size > BigInt(IN_MEMORY_BYTES)) return false;
  const look = lookOf(stat);
  const source = openSync(fsPath(from), READ);
  try {
    const target = openSync(fsPath(to), CREATE, look.mode & PERMISSIONS);
    try {
      const made = fstatSync(target);
      if (isInMemoryOnly(source) || !share(source, target, stat.dev, made.dev)) writeFrom(source, target);
      dress(target, look, made);
      finish(target);
    } finally {
      closeSync(target);
    }
    return true;
  } finally {
    closeSync(source);
  }
}

function writeFrom(source: number, target: number): void {
  for (let at = 0, bytes = content.length; bytes === content.length; at += bytes) {
    bytes = readSync(source, content, 0, content.length, at);
    writeWhole(target, bytes);
  }
}

/** Tells of a file whether it is small and regular. */
export function isSmall(stat: BigIntStats): boolean {
  return stat.isFile() && stat.size <= BigInt(SMALL_BYTES);
}

/**
 * Reads a file into memory for one byte more than a small file has.
 * @param isPlain is asked with its descriptor first.
 * @returns its size, or -1 when it is neither small nor plain.
 */
export function readSmall(from: string, place: Buffer, isPlain: (fd: number) => boolean): number {
  const source = quickOpen(from);
  try {
    if (!isPlain(source)) return -1;
    // Reading at a place fails for a FIFO that has taken the place of the file.
    const bytes = readSync(source, place, 0, place.length, 0);
    return bytes > SMALL_BYTES ? -1 : bytes;
  } finally {
    closeFd(source);
  }
}

/** Tells whether it is known that content cannot be shared between two file systems. */
export function isApart(sourceDevice: bigint, targetDevice: bigint): boolean {
  return apart.has(`${sourceDevice}:${targetDevice}`);
}

function share(source: number, target: number, sourceDevice: bigint, targetDevice: number): boolean {
  const pair = `${sourceDevice}:${targetDevice}`;
  if (apart.has(pair)) return false;
  if (shareContent(target, source)) return true;
  apart.add(pair);
  return false;
}

function writeWhole(target: number, bytes: number): void {
  for (let at = 0; at < bytes;) at += writeSync(target, content, at, bytes - at);
}

/** Sets what the new file has not got yet. A change of the owner takes bits of the mode away. */
function dress(target: number, { uid, gid, mode }: Look, made: Look): void {
  if (made.uid !== uid || made.gid !== gid) fchownSync(target, uid, gid);
  if ((made.mode & 0o7777) !== mode) fchmodSync(target, mode);
}
