/** Worker task: deletes directory trees of any size. */
import { deleteSubvolume, isBtrfs, isSubvolumeRoot } from '../../sys/btrfs/subvolumes.js';
import { fsPath, toBytePath } from '../byte-path.js';
import { removeTree } from '../remove-tree.js';
import { statOf } from '../stat-of.js';
import { walkTree } from '../walk-tree.js';

/** Deletes the paths and everything below them; symbolic links are not followed. Idempotent. */
export function removeTrees({ paths }: { readonly paths: readonly string[] }): void {
  for (const path of paths) {
    try {
      removeTree(toBytePath(path));
    } catch (error) {
      // On btrfs everybody can make subvolumes, and those that are read-only do not go like directories.
      if (!statOf(toBytePath(path)) || !isBtrfs(path) || !deleteSubvolumes(toBytePath(path))) throw error;
      removeTree(toBytePath(path));
    }
  }
}

/** Deletes all subvolumes in a tree. Returns false if there is none. */
function deleteSubvolumes(path: string): boolean {
  if (deleteSubvolume(fsPath(path))) return true;
  let isAny = false;
  // Those in others go with them.
  for (const { at, stat } of walkTree(path, { enters: (below) => !isSubvolumeRoot(below), tooDeep: 'left' }))
    if (isSubvolumeRoot(stat)) isAny = deleteSubvolume(fsPath(at)) || isAny;
  return isAny;
}
