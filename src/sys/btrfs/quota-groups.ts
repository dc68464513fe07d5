/**
 * Quota groups of btrfs: they count and limit the bytes that a subvolume refers to. Synchronous, for worker threads:
 * turning them on and counting again read the metadata of all subvolumes.
 */
import { existsSync, readFileSync, writeFileSync } from 'node:fs';
import { control, searchTree, withDirectory } from './ioctl.js';
import { fileSystemId, subvolumeId } from './subvolumes.js';

// linux/btrfs.h
const QUOTA_CTL = 0xc0109428;
const QUOTA_CTL_ENABLE = 1n;
const QUOTA_RESCAN = 0x4040942c;
const QUOTA_RESCAN_WAIT = 0x942e;
const QGROUP_LIMIT = 0x8030942b;
const MAX_REFERENCED = 1n;
const CLEAR = 0xffff_ffff_ffff_ffffn;
// linux/btrfs_tree.h
const QUOTA_TREE = 8n;
const STATUS_ITEM = 0xf0;
const INFO_ITEM = 0xf2;
const LIMIT_ITEM = 0xf4;
const IS_INCONSISTENT = 4n;
/** The deletion of a tree with fewer levels than this is counted, and that is any tree. */
const ALL_LEVELS = '8';

/** Tells whether the groups are off, count, or count wrongly until they are counted again. */
export type QuotaState = 'off' | 'on' | 'inconsistent';

export function quotaState(path: string): QuotaState {
  return withDirectory(path, (fd) => {
    try {
      const flags = searchTree(fd, QUOTA_TREE, STATUS_ITEM)[0]?.data.readBigUInt64LE(16);
      return flags === undefined ? 'off' : (flags & IS_INCONSISTENT) === 0n ? 'on' : 'inconsistent';
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code === 'ENOENT') return 'off';
      throw error;
    }
  });
}

/** Turns the groups on if they are off, and returns when the counts are right. */
export function ensureQuota(path: string): void {
  const before = quotaState(path);
  if (before === 'on') return;
  withDirectory(path, (fd) => {
    if (before === 'off') {
      const command = Buffer.alloc(16);
      command.writeBigUInt64LE(QUOTA_CTL_ENABLE);
      control(fd, 'QUOTA_CTL', QUOTA_CTL, command);
    } else rescan(fd);
    control(fd, 'QUOTA_RESCAN_WAIT', QUOTA_RESCAN_WAIT, Buffer.alloc(0));
  });
  countDeletions(path);
}

function rescan(fd: number): void {
  try {
    control(fd, 'QUOTA_RESCAN', QUOTA_RESCAN, Buffer.alloc(64));
  } catch (error) {
    // One is under way.
    if ((error as NodeJS.ErrnoException).code !== 'EINPROGRESS') throw error;
  }
}

/** Without this, the deletion of a large subvolume makes the counts wrong, and limits are not kept any more. */
function countDeletions(path: string): void {
  const file = `/sys/fs/btrfs/${fileSystemId(path)}/qgroups/drop_subtree_threshold`;
  if (existsSync(file) && readFileSync(file, 'utf8').trim() !== ALL_LEVELS) writeFileSync(file, ALL_LEVELS);
}

/** Returns the bytes that a subvolume refers to, at the time of the last commit. */
export function referencedBytes(path: string): number {
  return withDirectory(path, (fd) => {
    const id = subvolumeId(fd);
    const info = searchTree(fd, QUOTA_TREE, INFO_ITEM, 0n, id)[0];
    return Number(info?.data.readBigUInt64LE(8) ?? 0n);
  });
}

/** Returns the limit of a subvolume in bytes; undefined for none. */
export function limitOf(path: string): number | undefined {
  return withDirectory(path, (fd) => {
    const data = searchTree(fd, QUOTA_TREE, LIMIT_ITEM, 0n, subvolumeId(fd))[0]?.data;
    return data && (data.readBigUInt64LE(0) & MAX_REFERENCED) !== 0n ? Number(data.readBigUInt64LE(8)) : undefined;
  });
}

/** Limits the bytes that a subvolume refers to; undefined lifts the limit. @throws EngineError code ENOTCONN (off). */
export function setLimit(path: string, bytes: number | undefined): void {
  const argument = Buffer.alloc(48);
  argument.writeBigUInt64LE(MAX_REFERENCED, 8);
  argument.writeBigUInt64LE(bytes === undefined ? CLEAR : BigInt(bytes), 16);
  withDirectory(path, (fd) => control(fd, 'QGROUP_LIMIT', QGROUP_LIMIT, argument));
}
