/** Counts the blocks of the files of snapshots, which are in the supervisor's directory. For worker threads. */
import { toBytePath } from '../../byte-path.js';
import { walkTree } from '../../walk-tree.js';
import { FILES_LINK, textOf } from './places.js';

const BLOCK_BYTES = 512n;

/** Returns the bytes below the files of a layer or container; 0 for a directory that has no snapshot. */
export function ownBytes(directory: string): number {
  const files = textOf(directory, FILES_LINK);
  if (files === undefined) return 0;
  const linked = new Set<bigint>();
  let total = 0n;
  try {
    for (const { stat } of walkTree(toBytePath(files), { tooDeep: 'left' })) {
      if (stat.nlink > 1n && !stat.isDirectory()) {
        if (linked.has(stat.ino)) continue;
        linked.add(stat.ino);
      }
      total += stat.blocks * BLOCK_BYTES;
    }
  } catch (error) {
    // The snapshot was removed after its directory was listed.
    if ((error as NodeJS.ErrnoException).code !== 'ENOENT') throw error;
  }
  return Number(total);
}
