/**
 * Reads and makes the marks in a difference that tell what it hides of the layers below. They are those of overlayfs,
 * which can mount a difference as it is. Synchronous, for worker threads. Paths are byte strings.
 */
import { makeDevice } from '../../sys/files/inode.js';
import { getXattr, removeXattr, setXattr } from '../../sys/files/xattr.js';
import { isInUserNamespace } from '../../sys/users/user-namespace.js';
import { fsPath } from '../byte-path.js';

/** In a user namespace overlayfs keeps its marks, with the option `userxattr`, where root of that namespace may. */
const opaqueMark = (): string => (isInUserNamespace() ? 'user.overlay.opaque' : 'trusted.overlay.opaque');
/** Attributes of the kernel's overlay and of fuse-overlayfs, which say what is hidden, or what else a file shall be. */
const PREFIXES = [
  'trusted.overlay.',
  'user.overlay.',
  'user.fuseoverlayfs.',
  'security.fuseoverlayfs.',
  'user.containers.override_stat',
];

const YES = Buffer.from('y');

/** Tells of the name of an attribute whether it is such a mark: neither a layer nor a container has it to give. */
export function isMark(name: string): boolean {
  return PREFIXES.some((prefix) => name.startsWith(prefix));
}

/** True for a whiteout, which stands for a deleted name. */
export function isWhiteout(stat: { isCharacterDevice(): boolean; readonly rdev: number | bigint }): boolean {
  return stat.isCharacterDevice() && Number(stat.rdev) === 0;
}

export function makeWhiteout(at: string): void {
  makeDevice(fsPath(at), 'char', 0, 0);
}

/** True for a directory that hides what the layers below have in it. */
export function isOpaque(at: string): boolean {
  return getXattr(fsPath(at), opaqueMark())?.toString('latin1') === 'y';
}

export function makeOpaque(at: string): void {
  setXattr(fsPath(at), opaqueMark(), YES);
}

export function makeTransparent(at: string): void {
  removeXattr(fsPath(at), opaqueMark());
}
