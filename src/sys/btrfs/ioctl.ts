/** Control requests to btrfs (linux/btrfs.h). Synchronous: many of them wait for the disk, so they are for workers. */
import { closeSync, constants, openSync } from 'node:fs';
import { libc, syscallError } from '../ffi/libc.js';

const ioctl = libc.func<[fd: number, request: number, argument: Buffer]>(
  'int ioctl(int fd, unsigned long request, void *argument)',
);

const TREE_SEARCH = 0xd0009411;
const SEARCH_BYTES = 4096;
const SEARCH_RESULTS_AT = 104;
const RESULT_HEADER_BYTES = 32;
const MAX_U64 = 0xffff_ffff_ffff_ffffn;
const OPEN_DIRECTORY = constants.O_RDONLY | constants.O_DIRECTORY | constants.O_NOFOLLOW;

export interface TreeItem {
  readonly objectId: bigint;
  readonly offset: bigint;
  readonly data: Buffer;
}

/** @throws EngineError with the errno's name as code. */
export function control(fd: number, name: string, request: number, argument: Buffer): void {
  if (ioctl(fd, request, argument) < 0) throw syscallError(`ioctl BTRFS_IOC_${name}`, libc.errno());
}

/**
 * Returns the first items of one type in a tree of the file system, those of one object if `objectId` is given. An
 * answer has a page of them at most.
 * @throws EngineError code ENOENT when there is no such tree.
 */
export function searchTree(fd: number, tree: bigint, type: number, objectId?: bigint, offset?: bigint): TreeItem[] {
  const argument = Buffer.alloc(SEARCH_BYTES);
  argument.writeBigUInt64LE(tree, 0);
  argument.writeBigUInt64LE(objectId ?? 0n, 8);
  argument.writeBigUInt64LE(objectId ?? MAX_U64, 16);
  argument.writeBigUInt64LE(offset ?? 0n, 24);
  argument.writeBigUInt64LE(offset ?? MAX_U64, 32);
  argument.writeBigUInt64LE(MAX_U64, 48);
  argument.writeUInt32LE(type, 56);
  argument.writeUInt32LE(type, 60);
  argument.writeUInt32LE(SEARCH_BYTES, 64);
  control(fd, 'TREE_SEARCH', TREE_SEARCH, argument);
  const items: TreeItem[] = [];
  let at = SEARCH_RESULTS_AT;
  for (let left = argument.readUInt32LE(64); left > 0; left--) {
    const length = argument.readUInt32LE(at + 28);
    const data = argument.subarray(at + RESULT_HEADER_BYTES, at + RESULT_HEADER_BYTES + length);
    // The kernel compares whole keys, so that items of other types may lie between the first and the last.
    if (argument.readUInt32LE(at + 24) === type)
      items.push({ objectId: argument.readBigUInt64LE(at + 8), offset: argument.readBigUInt64LE(at + 16), data });
    at += RESULT_HEADER_BYTES + length;
  }
  return items;
}

/** Calls `use` with a descriptor of a directory. A link is not followed. */
export function withDirectory<T>(path: string | Buffer, use: (fd: number) => T): T {
  const fd = openSync(path, OPEN_DIRECTORY);
  try {
    return use(fd);
  } finally {
    closeSync(fd);
  }
}
