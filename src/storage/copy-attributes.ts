/**
 * Copies inodes between places on this host, with all their attributes. Synchronous, for worker threads. Paths are byte
 * strings.
 */
import { closeSync, constants, copyFileSync, lchownSync, readlinkSync, symlinkSync, type BigIntStats } from 'node:fs';
import { makeDevice, makeFifo, makeSocket, setOpenFileTimes, setTimes } from '../sys/files/inode.js';
import { getXattr, listOpenXattrs, listXattrs, setXattr } from '../sys/files/xattr.js';
import { fsPath } from './byte-path.js';
import { chmodNode } from './chmod-node.js';
import { isMark } from './layers/marks.js';
import { copyPassing, copySmall, type Look, lookOf, type SeenFile } from './copy-regular.js';
import { requireRegular } from './open-regular.js';

const NS_PER_S = 1_000_000_000n;

const CAPABILITY = 'security.capability';

/** Matches attributes that are the host's, and those that its security module assigns. */
const NOT_COPIED = /^(trusted\.|security\.(?!capability$))/;

/** Returns the names of the extended attributes that belong to the content of a file. */
export function contentXattrs(at: string): string[] {
  return listXattrs(fsPath(at)).filter(isContentXattr);
}

/** Tells whether an open file has extended attributes that belong to its content. */
export function hasContentXattrs(fd: number): boolean {
  return listOpenXattrs(fd).some(isContentXattr);
}

/** Tells whether an attribute of this name belongs to the content of a file. */
export function isContentXattr(name: string): boolean {
  return !NOT_COPIED.test(name) && !isMark(name);
}

/** All that belongs to an inode besides its content. */
export interface Attributes {
  readonly stat: BigIntStats;
  readonly xattrs: readonly (readonly [name: string, value: Buffer])[];
}

export function readAttributes(at: string, stat: BigIntStats): Attributes {
  const xattrs = contentXattrs(at).flatMap((name): [string, Buffer][] => {
    const value = getXattr(fsPath(at), name);
    return value ? [[name, value]] : [];
  });
  return { stat, xattrs };
}

/** Sets owner, mode, extended attributes and times. */
export function setAttributes({ stat, xattrs }: Attributes, to: string): void {
  const target = fsPath(to);
  lchownSync(target, Number(stat.uid), Number(stat.gid));
  if (!stat.isSymbolicLink()) chmodNode(target, Number(stat.mode & 0o7777n));
  setRest({ stat, xattrs }, target);
}

function setRest({ stat, xattrs }: Attributes, target: string | Buffer): void {
  for (const [name, value] of xattrs) setXattr(target, name, value);
  setTimes(target, ...splitNs(stat.mtimeNs));
}

function setOpenRest({ stat, xattrs }: Attributes, to: string, fd: number): void {
  for (const [name, value] of xattrs) setXattr(fsPath(to), name, value);
  setOpenFileTimes(fd, ...splitNs(stat.mtimeNs));
}

/** Gives `to` the owner, mode, extended attributes and times of `from`. */
export function copyAttributes(from: string, stat: BigIntStats, to: string): void {
  setAttributes(readAttributes(from, stat), to);
}

/** Sets the modification time of `stat` (and the same access time) on `to`. */
export function copyTimes(stat: BigIntStats, to: string): void {
  setTimes(fsPath(to), ...splitNs(stat.mtimeNs));
}

/** Splits a time in nanoseconds since 1970. */
export function splitNs(time: bigint): readonly [seconds: number, nanoseconds: number] {
  const nanoseconds = ((time % NS_PER_S) + NS_PER_S) % NS_PER_S;
  return [Number((time - nanoseconds) / NS_PER_S), Number(nanoseconds)];
}

/** A small regular file that is being copied. */
export interface CopiedFile {
  /** It is complete and open. */
  readonly fd: number;
  /** Valid until the call returns. */
  readonly content: Buffer;
  readonly hasXattrs: boolean;
}

/**
 * Copies a small regular file of a tree that nobody changes to a free name as `copyInode` does, but for owner and mode.
 * Returns false when nothing was made: for all else.
 */
export function copySmallFile(
  from: string,
  stat: BigIntStats,
  to: string,
  look: Look,
  use?: (file: CopiedFile) => void,
): boolean {
  return copySeen({ at: from, stat, isStill: true }, to, look, use);
}

function copySeen(seen: SeenFile, to: string, look: Look, use?: (file: CopiedFile) => void): boolean {
  const { at, stat } = seen;
  if (!stat.isFile()) return false;
  const isGiven = look.uid !== Number(stat.uid) || look.gid !== Number(stat.gid);
  // A change of the owner takes the rights of a program away.
  const xattrs = readAttributes(at, stat).xattrs.filter(([name]) => !isGiven || name !== CAPABILITY);
  return copySmall(seen, to, look, (fd, content) => {
    setOpenRest({ stat, xattrs }, to, fd);
    use?.({ fd, content, hasXattrs: xattrs.length > 0 });
  });
}

/** Does what `copyInode` does with an entry that is deleted afterwards, and that nobody else knows. */
export function copyPassingInode(from: string, stat: BigIntStats, to: string): void {
  if (!copyPassing(from, stat, to, (fd) => setOpenRest(readAttributes(from, stat), to, fd))) copyInode(from, stat, to);
}

/** Copies anything but a directory to a free name; shares the blocks if the file system can. */
export function copyInode(from: string, stat: BigIntStats, to: string): void {
  const target = fsPath(to);
  if (stat.isFile()) {
    if (copySeen({ at: from, stat, isStill: false }, to, lookOf(stat))) return;
    const attributes = readAttributes(from, stat);
    copyLarge(from, target);
    lchownSync(target, Number(stat.uid), Number(stat.gid));
    // The copy has the mode already, but a change of the owner takes these bits away.
    if ((stat.mode & 0o6000n) !== 0n) chmodNode(target, Number(stat.mode & 0o7777n));
    setRest(attributes, target);
    return;
  }
  if (stat.isSymbolicLink()) symlinkSync(readlinkSync(fsPath(from), 'buffer'), target);
  else if (stat.isFIFO()) makeFifo(target);
  else if (stat.isSocket()) makeSocket(target);
  else makeDevice(target, stat.isCharacterDevice() ? 'char' : 'block', deviceMajor(stat.rdev), deviceMinor(stat.rdev));
  copyAttributes(from, stat, to);
}

function copyLarge(from: string, target: string | Buffer): void {
  const source = requireRegular(from);
  try {
    const how = constants.COPYFILE_EXCL | constants.COPYFILE_FICLONE;
    copyFileSync(`/proc/self/fd/${source.fd}`, target, how);
  } finally {
    closeSync(source.fd);
  }
}

/** Returns a part of a device number as glibc's makedev(3) packs it. */
export function deviceMajor(device: bigint): number {
  return Number(((device >> 8n) & 0xfffn) | ((device >> 32n) & 0xfffff000n));
}

export function deviceMinor(device: bigint): number {
  return Number((device & 0xffn) | ((device >> 12n) & 0xffffff00n));
}
