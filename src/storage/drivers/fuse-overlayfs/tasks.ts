/** Worker task of the driver `fuse-overlayfs`. */
import { unlinkSync } from 'node:fs';
import { fsPath, toBytePath } from '../../byte-path.js';
import { copyTimes } from '../../copy-attributes.js';
import { statOf } from '../../stat-of.js';
import { walkTree } from '../../walk-tree.js';

/** No container has files with such names: the program refuses them. */
const OWN_MARK = '.wh.';

/**
 * Removes from what a container wrote the files by which the program marks directories that hide what is below them.
 * They have the mark of the kernel's overlay as well, which is enough for both.
 */
export function tidyUpper({ diffDir }: { readonly diffDir: string }): void {
  const root = toBytePath(diffDir);
  for (const { path, stat } of walkTree(root)) {
    const slash = path.lastIndexOf('/');
    if (stat.isDirectory() || !path.startsWith(OWN_MARK, slash + 1)) continue;
    const directory = slash < 0 ? root : `${root}/${path.slice(0, slash)}`;
    const before = statOf(directory);
    unlinkSync(fsPath(`${root}/${path}`));
    if (before) copyTimes(before, directory);
  }
}
