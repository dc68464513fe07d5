/** Trees of mounts that are made away from all others and attached when they are complete (open_tree(2)). */
import { libc } from '../ffi/libc.js';

// Numbers of the newer system calls are the same on every architecture.
const SYS_OPEN_TREE = 428;
const SYS_MOVE_MOUNT = 429;
const SYS_MOUNT_SETATTR = 442;
// linux/mount.h, linux/fcntl.h
const OPEN_TREE_CLONE = 1;
const OPEN_TREE_CLOEXEC = 0o2000000;
const AT_RECURSIVE = 0x8000;
const AT_EMPTY_PATH = 0x1000;
const AT_FDCWD = -100;
const MOVE_MOUNT_F_EMPTY_PATH = 0x04;
const MOVE_MOUNT_T_EMPTY_PATH = 0x40;
const MOUNT_ATTR_RDONLY = 1;
const MOUNT_ATTR_IDMAP = 0x100000;
/** struct mount_attr: attr_set, attr_clr, propagation, userns_fd, each of 64 bits. */
const MOUNT_ATTR_BYTES = 32;

const openTree = libc.checked<[number: number, dirfd: number, path: string, flags: number]>(
  'open_tree',
  'long syscall(long number, int dirfd, const char *path, unsigned int flags)',
);
const moveMount = libc.checked<
  [number: number, from: number, fromPath: string, to: number, toPath: string, flags: number]
>(
  'move_mount',
  'long syscall(long number, int from_dirfd, const char *from_path, int to_dirfd, const char *to_path, ' +
    'unsigned int flags)',
);
const mountSetattr = libc.checked<
  [number: number, dirfd: number, path: string, flags: number, attributes: Buffer, size: number]
>(
  'mount_setattr',
  'long syscall(long number, int dirfd, const char *path, unsigned int flags, void *attributes, size_t size)',
);

/**
 * Returns the descriptor of a copy of what is at a path, with the mounts below it if wanted. The kernel frees the copy
 * when it is closed without having been attached.
 * @throws EngineError code ENOENT, ENOTDIR, EINVAL for what may not be copied.
 */
export function cloneTree(path: string, recursive: boolean): number {
  return openTree(SYS_OPEN_TREE, AT_FDCWD, path, OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC | (recursive ? AT_RECURSIVE : 0));
}

/** As `cloneTree`, of what a descriptor stands for. */
export function cloneTreeOf(fd: number, recursive: boolean): number {
  const flags = OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC | AT_EMPTY_PATH | (recursive ? AT_RECURSIVE : 0);
  return openTree(SYS_OPEN_TREE, fd, '', flags);
}

/** Attaches a tree at a path; the descriptor stays open. @throws EngineError code ENOENT, ENOTDIR, EINVAL. */
export function attachTree(tree: number, path: string): void {
  moveMount(SYS_MOVE_MOUNT, tree, '', AT_FDCWD, path, MOVE_MOUNT_F_EMPTY_PATH);
}

/** As `attachTree`, at the place that a descriptor stands for. */
export function attachTreeAt(tree: number, place: number): void {
  moveMount(SYS_MOVE_MOUNT, tree, '', place, '', MOVE_MOUNT_F_EMPTY_PATH | MOVE_MOUNT_T_EMPTY_PATH);
}

/**
 * Shows the files of a tree that is not attached yet, with all mounts in it, as those of other users: the user that has
 * an id inside a user namespace for the user of that id on the disk (mount_setattr(2), `MOUNT_ATTR_IDMAP`).
 * @param usernsFd descriptor of a user namespace that is not the machine's.
 * @throws EngineError code EINVAL when the kernel, or the file system, cannot; EPERM without the right to.
 */
export function mapIds(tree: number, usernsFd: number, readOnly = false): void {
  const attributes = Buffer.alloc(MOUNT_ATTR_BYTES);
  attributes.writeBigUInt64LE(BigInt(MOUNT_ATTR_IDMAP | (readOnly ? MOUNT_ATTR_RDONLY : 0)), 0);
  attributes.writeBigUInt64LE(BigInt(usernsFd), 24);
  mountSetattr(SYS_MOUNT_SETATTR, tree, '', AT_EMPTY_PATH | AT_RECURSIVE, attributes, MOUNT_ATTR_BYTES);
}
