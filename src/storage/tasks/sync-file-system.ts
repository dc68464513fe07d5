/** Worker task: writes everything to the disk that a file system still has in memory. */
import { closeSync, openSync } from 'node:fs';
import { syncFileSystem } from '../../sys/files/inode.js';

/** @throws EngineError code EIO, ENOSPC. */
export function syncFileSystemOf({ path }: { readonly path: string }): void {
  const fd = openSync(path, 'r');
  try {
    syncFileSystem(fd);
  } finally {
    closeSync(fd);
  }
}
