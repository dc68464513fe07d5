/** Worker task: counts the bytes in a tree. */
import { toBytePath } from '../byte-path.js';
import { walkTree } from '../walk-tree.js';

/** Returns the sum of the sizes of the regular files below `path`; a file with several names counts once. */
export function treeSize({ path }: { readonly path: string }): number {
  const counted = new Set<bigint>();
  let total = 0n;
  for (const { stat } of walkTree(toBytePath(path), { tooDeep: 'left' })) {
    if (!stat.isFile() || (stat.nlink > 1n && counted.has(stat.ino))) continue;
    if (stat.nlink > 1n) counted.add(stat.ino);
    total += stat.size;
  }
  return Number(total);
}
