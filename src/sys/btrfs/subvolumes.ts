/**
 * Makes, seals and deletes subvolumes of btrfs. For worker threads, but for what returns a promise. Paths are as in
 * Node's fs.
 */
import { lstatSync, statfsSync } from 'node:fs';
import { basename, dirname } from 'node:path';
import { control, controlLater, searchTree, withDirectory, withDirectoryLater } from './ioctl.js';

// linux/magic.h
const BTRFS_SUPER_MAGIC = 0x9123683e;
// linux/btrfs.h
const SUBVOL_CREATE = 0x5000940e;
const SNAP_CREATE_V2 = 0x50009417;
const SNAP_DESTROY_V2 = 0x5000943f;
const SUBVOL_SETFLAGS = 0x4008941a;
const INO_LOOKUP = 0xd0009412;
const SYNC = 0x9408;
const START_SYNC = 0x80089418;
const FS_INFO = 0x8400941f;
const SUBVOL_READ_ONLY = 2n;
const BY_ID = 0x10n;
const ARGUMENT_BYTES = 4096;
const NAME_AT = 8;
const NAME_AT_V2 = 56;
const FLAGS_AT = 16;
const ROOT_TREE = 1n;
const ROOT_REF = 156;
const FIRST_INODE = 256n;

export function isBtrfs(path: string): boolean {
  // The type is a signed number where the kernel's is.
  return statfsSync(path).type >>> 0 === BTRFS_SUPER_MAGIC;
}

/** True for a directory that is the root of a subvolume, if it is on btrfs. */
export function isSubvolumeRoot(stat: { isDirectory(): boolean; readonly ino: bigint }): boolean {
  return stat.isDirectory() && stat.ino === FIRST_INODE;
}

export function isSubvolume(path: string): boolean {
  const stat = lstatSync(path, { bigint: true, throwIfNoEntry: false });
  return stat !== undefined && isSubvolumeRoot(stat) && isBtrfs(path);
}

/** Makes an empty subvolume, 0755 less the umask. @throws EngineError code EEXIST, ENOTTY (not btrfs), ENOSPC. */
export function makeSubvolume(path: string): void {
  const argument = Buffer.alloc(ARGUMENT_BYTES);
  argument.write(basename(path), NAME_AT);
  withDirectory(dirname(path), (fd) => control(fd, 'SUBVOL_CREATE', SUBVOL_CREATE, argument));
}

/** Makes a writable snapshot of a subvolume; those nested in it are empty directories there. */
export function makeSnapshot(source: string, path: string): void {
  withDirectory(source, (sourceFd) => {
    withDirectory(dirname(path), (fd) => control(fd, 'SNAP_CREATE_V2', SNAP_CREATE_V2, snapshotOrder(sourceFd, path)));
  });
}

/** Does the same for the main thread, which does not wait for it. */
export async function takeSnapshot(source: string, path: string): Promise<void> {
  await withDirectoryLater(source, (sourceFd) =>
    withDirectoryLater(dirname(path), (fd) => controlLater(fd, SNAP_CREATE_V2, snapshotOrder(sourceFd, path))),
  );
}

function snapshotOrder(sourceFd: number, path: string): Buffer {
  const argument = Buffer.alloc(ARGUMENT_BYTES);
  argument.writeBigInt64LE(BigInt(sourceFd), 0);
  argument.write(basename(path), NAME_AT_V2);
  return argument;
}

/** Seals a subvolume, or opens it. Those who have a file of it open for writing can still write. */
export function setReadOnly(path: string, isReadOnly: boolean): void {
  const flags = Buffer.alloc(8);
  flags.writeBigUInt64LE(isReadOnly ? SUBVOL_READ_ONLY : 0n);
  withDirectory(path, (fd) => control(fd, 'SUBVOL_SETFLAGS', SUBVOL_SETFLAGS, flags));
}

/** Returns the ID of the subvolume that an open file is in. */
export function subvolumeId(fd: number): bigint {
  const argument = Buffer.alloc(ARGUMENT_BYTES);
  argument.writeBigUInt64LE(FIRST_INODE, 8);
  control(fd, 'INO_LOOKUP', INO_LOOKUP, argument);
  return argument.readBigUInt64LE(0);
}

/**
 * Deletes a subvolume (an absolute path) with all that are nested in it, read-only ones too. Mounts do not hinder it.
 * The space comes back in the background, sooner after `cleanSoon`. Returns false when there is no subvolume of
 * this name.
 */
export function deleteSubvolume(path: string | Buffer): boolean {
  const stat = lstatSync(path, { bigint: true, throwIfNoEntry: false });
  if (!stat || !isSubvolumeRoot(stat)) return false;
  const bytes = Buffer.from(path);
  // The dot makes a directory of a link in /proc/self/fd.
  const parent = Buffer.concat([bytes.subarray(0, bytes.lastIndexOf(0x2f) + 1), Buffer.from('.')]);
  const top = withDirectory(path, subvolumeId);
  withDirectory(parent, (fd) => {
    // By ID: a path may be too long for the request, and somebody may rename what is nested meanwhile.
    const pending = [top];
    for (let id = pending.at(-1); id !== undefined; id = pending.at(-1)) {
      if (destroyed(fd, id)) pending.pop();
      else pending.push(...nestedIn(fd, id));
    }
  });
  return true;
}

/**
 * Deletes subvolumes with these names in a directory, for the main thread, which does not wait for it. Returns whether
 * there were any. @throws EngineError code ENOTEMPTY when others are nested in one, EINVAL for what is none.
 */
export function deleteSubvolumesLater(directory: string, names: readonly string[]): Promise<boolean> {
  return withDirectoryLater(directory, async (fd) => {
    let isAny = false;
    for (const name of names) isAny = (await destroyedLater(fd, name)) || isAny;
    return isAny;
  });
}

/** Returns false when there is nothing of this name. */
async function destroyedLater(fd: number, name: string): Promise<boolean> {
  const argument = Buffer.alloc(ARGUMENT_BYTES);
  argument.write(name, NAME_AT_V2);
  try {
    await controlLater(fd, SNAP_DESTROY_V2, argument);
    return true;
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'ENOENT') return false;
    throw error;
  }
}

/** Returns false for one that others are nested in. */
function destroyed(fd: number, id: bigint): boolean {
  const argument = Buffer.alloc(ARGUMENT_BYTES);
  argument.writeBigUInt64LE(BY_ID, FLAGS_AT);
  argument.writeBigUInt64LE(id, NAME_AT_V2);
  try {
    control(fd, 'SNAP_DESTROY_V2', SNAP_DESTROY_V2, argument);
    return true;
  } catch (error) {
    const { code } = error as NodeJS.ErrnoException;
    if (code === 'ENOENT') return true;
    if (code === 'ENOTEMPTY' && nestedIn(fd, id).length > 0) return false;
    throw error;
  }
}

function nestedIn(fd: number, id: bigint): bigint[] {
  return searchTree(fd, ROOT_TREE, ROOT_REF, id).map(({ offset }) => offset);
}

/**
 * Makes the kernel write down soon what has changed, and then go on with the subvolumes that were deleted. What these
 * had is free when that is written down, too: by a second call, or the kernel's own of each half minute. It waits for
 * nothing and writes no files of others, as `startCleaning` does, which makes all wait who want something of the disk.
 */
export function cleanSoon(path: string): void {
  withDirectory(path, (fd) => control(fd, 'START_SYNC', START_SYNC, Buffer.alloc(8)));
}

/** Does the same for the main thread, which does not wait for it. */
export function cleanLater(path: string): Promise<void> {
  return withDirectoryLater(path, (fd) => controlLater(fd, START_SYNC, Buffer.alloc(8)));
}

/** Writes everything to the disk, after which the kernel goes on with the subvolumes that were deleted. */
export function startCleaning(path: string): void {
  withDirectory(path, (fd) => control(fd, 'SYNC', SYNC, Buffer.alloc(0)));
}

/** Returns the UUID of the file system, by which it is called in /sys/fs/btrfs. */
export function fileSystemId(path: string): string {
  const info = Buffer.alloc(1024);
  withDirectory(path, (fd) => control(fd, 'FS_INFO', FS_INFO, info));
  const hex = info.toString('hex', 16, 32);
  return [hex.slice(0, 8), hex.slice(8, 12), hex.slice(12, 16), hex.slice(16, 20), hex.slice(20)].join('-');
}
