/** Where the file system puts new layers. */
import { closeSync, openSync } from 'node:fs';
import { markTopDirectory } from '../../sys/files/inode.js';

/**
 * Spreads layers over the disk. ext4 would put a new layer where an old one was just deleted, and search there past
 * every inode that was freed in the last minutes: unpacking many small files took ten times as long.
 */
export function spreadLayers(staging: string): void {
  const fd = openSync(staging, 'r');
  try {
    markTopDirectory(fd);
  } finally {
    closeSync(fd);
  }
}
