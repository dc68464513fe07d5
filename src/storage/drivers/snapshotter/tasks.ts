/** Worker task of snapshotters whose snapshots are whole trees. */
import { toBytePath } from '../../byte-path.js';
import { copyTimes } from '../../copy-attributes.js';
import { statOf } from '../../stat-of.js';
import { type FillInput, fillTree } from '../../trees/fill-tree.js';
import { walkTree } from '../../walk-tree.js';

export interface FillCopyInput extends FillInput {
  /** The tree that the snapshotter made this one from. */
  readonly original: string | undefined;
}

/**
 * Carries out differences on a copy. The snapshotter `native` gives directories the time when it copied them, so they
 * get their own back before.
 */
export function fillCopy({ original, ...input }: FillCopyInput): void {
  if (original !== undefined) {
    const [from, to] = [toBytePath(original), toBytePath(input.tree)];
    for (const { path, stat } of walkTree(from)) if (stat.isDirectory()) copyTimes(stat, `${to}/${path}`);
    const root = statOf(from);
    if (root) copyTimes(root, to);
  }
  fillTree(input);
}
