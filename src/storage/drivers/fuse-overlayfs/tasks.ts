/** Worker task of the driver `fuse-overlayfs`. */
import { unlinkSync } from 'node:fs';
import { getXattr, removeXattr } from '../../../sys/files/xattr.js';
import { isInUserNamespace } from '../../../sys/users/user-namespace.js';
import { fsPath, toBytePath } from '../../byte-path.js';
import { copyTimes } from '../../copy-attributes.js';
import { makeOpaque } from '../../layers/marks.js';
import { statOf } from '../../stat-of.js';
import { walkTree } from '../../walk-tree.js';

/** No container has files with such names: the program refuses them. */
const OWN_MARK = '.wh.';

/** The program marks directories that hide what is below them so, where it may not set the mark of the kernel. */
const OWN_OPAQUE = 'user.fuseoverlayfs.opaque';

/**
 * Leaves of the program's marks in what a container wrote those of the kernel's overlay, which are enough for both:
 * files that mark the directory that they are in are removed, and an attribute of its own is replaced.
 */
export function tidyUpper({ diffDir }: { readonly diffDir: string }): void {
  const root = toBytePath(diffDir);
  for (const { path, stat } of walkTree(root)) {
    if (stat.isDirectory()) settleOpaque(`${root}/${path}`);
    const slash = path.lastIndexOf('/');
    if (stat.isDirectory() || !path.startsWith(OWN_MARK, slash + 1)) continue;
    const directory = slash < 0 ? root : `${root}/${path.slice(0, slash)}`;
    const before = statOf(directory);
    unlinkSync(fsPath(`${root}/${path}`));
    if (before) copyTimes(before, directory);
  }
}

/** Gives a directory the mark of the kernel's overlay in place of the program's own. It has none as a rule. */
export function settleOpaque(at: string): void {
  const path = fsPath(at);
  if (!isInUserNamespace() || getXattr(path, OWN_OPAQUE) === undefined) return;
  makeOpaque(at);
  removeXattr(path, OWN_OPAQUE);
}
