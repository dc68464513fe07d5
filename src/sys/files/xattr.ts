/**
 * Reads, sets and removes extended attributes, never following a symbolic link in the last component. Paths are as in
 * Node's fs.
 */
import { cPath, libc, syscallError } from '../ffi/libc.js';

type Path = string | Buffer;

const lsetxattr = libc.checked<[path: Path, name: string, value: Buffer, size: number, flags: number]>(
  'lsetxattr',
  'int lsetxattr(const char *path, const char *name, const void *value, size_t size, int flags)',
);
const lremovexattr = libc.checked<[path: Path, name: string]>(
  'lremovexattr',
  'int lremovexattr(const char *path, const char *name)',
);
const lgetxattr = libc.func<[path: Path, name: string, value: Buffer, size: number]>(
  'intptr_t lgetxattr(const char *path, const char *name, void *value, size_t size)',
);
const llistxattr = libc.func<[path: Path, list: Buffer, size: number]>(
  'intptr_t llistxattr(const char *path, char *list, size_t size)',
);
const flistxattr = libc.func<[fd: number, list: Buffer, size: number]>(
  'intptr_t flistxattr(int fd, char *list, size_t size)',
);

// linux/limits.h: XATTR_SIZE_MAX and XATTR_LIST_MAX are both 64 KiB.
const scratch = Buffer.allocUnsafeSlow(65_536);

/** Sets an attribute, replacing its old value. @throws EngineError code ENOTSUP, EPERM, ENOSPC, ENOENT. */
export function setXattr(path: Path, name: string, value: Buffer): void {
  lsetxattr(cPath(path), name, value, value.length, 0);
}

/** Removes an attribute. @throws EngineError code ENODATA, EPERM. */
export function removeXattr(path: Path, name: string): void {
  lremovexattr(cPath(path), name);
}

/** Returns the value of an attribute; undefined when it is missing or the file system has no attributes. */
export function getXattr(path: Path, name: string): Buffer | undefined {
  const length = lgetxattr(cPath(path), name, scratch, scratch.length);
  if (length >= 0) return Buffer.from(scratch.subarray(0, length));
  const errno = libc.errno();
  if (errno === ENODATA || errno === EOPNOTSUPP) return undefined;
  throw syscallError('lgetxattr', errno);
}

/**
 * Returns the sorted names of all attributes that this process may see; none when the file system has no attributes.
 */
export function listXattrs(path: Path): string[] {
  return namesOf('llistxattr', llistxattr(cPath(path), scratch, scratch.length));
}

/** Returns the same of an open file. */
export function listOpenXattrs(fd: number): string[] {
  return namesOf('flistxattr', flistxattr(fd, scratch, scratch.length));
}

/** @param length of the list that a call has left in `scratch`. */
function namesOf(call: string, length: number): string[] {
  if (length > 0)
    return scratch
      .toString('latin1', 0, length - 1)
      .split('\0')
      .sort();
  if (length === 0) return [];
  const errno = libc.errno();
  if (errno === EOPNOTSUPP) return [];
  throw syscallError(call, errno);
}

// asm-generic/errno.h
const ENODATA = 61;
const EOPNOTSUPP = 95;
