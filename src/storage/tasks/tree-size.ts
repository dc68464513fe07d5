/** Worker task: how many bytes a tree holds. */
import { lstatSync, readdirSync } from 'node:fs';
import { fsPath, toBytePath } from '../byte-path.js';

/** Sum of the sizes of the regular files below `path`, a file with several names counted once. */
export function treeSize({ path }: { readonly path: string }): number {
  const counted = new Set<number>();
  const pending = [toBytePath(path)];
  let total = 0;
  for (let dir = pending.pop(); dir !== undefined; dir = pending.pop()) {
    for (const entry of readdirSync(fsPath(dir), { encoding: 'latin1', withFileTypes: true })) {
      const child = `${dir}/${entry.name}`;
      if (entry.isDirectory()) pending.push(child);
      if (!entry.isFile()) continue;
      const stat = lstatSync(fsPath(child), { throwIfNoEntry: false });
      // The tree may be in use: what vanished in between has no size.
      if (!stat || (stat.nlink > 1 && counted.has(stat.ino))) continue;
      if (stat.nlink > 1) counted.add(stat.ino);
      total += stat.size;
    }
  }
  return total;
}
