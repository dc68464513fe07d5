/** Tells whether files are in memory, where nobody waits for a disk. */
import { statfsSync } from 'node:fs';

// linux/magic.h
const TMPFS_MAGIC = 0x01021994;
const RAMFS_MAGIC = 0x858458f6;

/** True for a directory on a tmpfs or ramfs. @throws the errno error of the file system. */
export function isInMemory(path: string): boolean {
  const { type } = statfsSync(path);
  return type === TMPFS_MAGIC || type === RAMFS_MAGIC;
}
