/**
 * Control requests to btrfs (linux/btrfs.h). Many wait for the disk, so they are for workers, but for what returns a
 * promise.
 */
import { closeSync, constants, openSync } from 'node:fs';
import { open } from 'node:fs/promises';
import { libc, syscallError } from '../ffi/libc.js';

const ioctl = libc.func<[fd: number, request: number, argument: Buffer]>(
  'int ioctl(int fd, unsigned long request, void *argument)',
);

const ioctlLater = libc.async<[fd: number, request: number, argument: Buffer]>(
  'ioctl of btrfs',
  'int ioctl(int fd, unsigned long request, void *argument)',
);
/** Arguments of requests under way: what is referenced is not collected. */
const inUse = new Set<Buffer>();

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

/** As `control`, on a thread of libuv's pool. */
export async function controlLater(fd: number, request: number, argument: Buffer): Promise<void> {
  inUse.add(argument);
  try {
    await ioctlLater(fd, request, argument);
  } finally {
    inUse.delete(argument);
  }
}

/** A key in a tree of the file system; keys are ordered by these three. */
interface Key {
  readonly objectId: bigint;
  readonly type: number;
  readonly offset: bigint;
}

/**
 * Returns the first items of one type in a tree of the file system, those of one object if `objectId` is given. An
 * answer has a page of them at most.
 * @throws EngineError code ENOENT when there is no such tree.
 */
export function searchTree(fd: number, tree: bigint, type: number, objectId?: bigint, offset?: bigint): TreeItem[] {
  const from = { objectId: objectId ?? 0n, type, offset: offset ?? 0n };
  const to = { objectId: objectId ?? MAX_U64, type, offset: offset ?? MAX_U64 };
  return searchPage(fd, { tree, from, to, since: 0n }).filter((item) => item.type === type);
}

/** Returns all items of one type in a tree; parts that are older than the transaction `since` may be left out. */
export function* walkTreeItems(fd: number, tree: bigint, type: number, since: bigint): Generator<TreeItem> {
  const to = { objectId: MAX_U64, type: 0xff, offset: MAX_U64 };
  let from: Key = { objectId: 0n, type: 0, offset: 0n };
  for (;;) {
    const page = searchPage(fd, { tree, from, to, since });
    for (const item of page) if (item.type === type) yield item;
    const last = page.at(-1);
    if (!last || last.offset === MAX_U64) return;
    from = { ...last, offset: last.offset + 1n };
  }
}

interface Search {
  readonly tree: bigint;
  readonly from: Key;
  readonly to: Key;
  readonly since: bigint;
}

/** The kernel compares whole keys, so that items of other types may lie between the first and the last. */
function searchPage(fd: number, { tree, from, to, since }: Search): (TreeItem & Key)[] {
  const argument = Buffer.alloc(SEARCH_BYTES);
  for (const [value, at] of [
    [tree, 0],
    [from.objectId, 8],
    [to.objectId, 16],
    [from.offset, 24],
    [to.offset, 32],
    [since, 40],
    [MAX_U64, 48],
  ] as const)
    argument.writeBigUInt64LE(value, at);
  argument.writeUInt32LE(from.type, 56);
  argument.writeUInt32LE(to.type, 60);
  argument.writeUInt32LE(SEARCH_BYTES, 64);
  control(fd, 'TREE_SEARCH', TREE_SEARCH, argument);
  const items: (TreeItem & Key)[] = [];
  let at = SEARCH_RESULTS_AT;
  for (let left = argument.readUInt32LE(64); left > 0; left--) {
    const length = argument.readUInt32LE(at + 28);
    items.push({
      objectId: argument.readBigUInt64LE(at + 8),
      offset: argument.readBigUInt64LE(at + 16),
      type: argument.readUInt32LE(at + 24),
      data: argument.subarray(at + RESULT_HEADER_BYTES, at + RESULT_HEADER_BYTES + length),
    });
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

/** As `withDirectory`, on threads of libuv's pool. */
export async function withDirectoryLater<T>(path: string, use: (fd: number) => Promise<T>): Promise<T> {
  const directory = await open(path, OPEN_DIRECTORY);
  try {
    return await use(directory.fd);
  } finally {
    await directory.close();
  }
}
