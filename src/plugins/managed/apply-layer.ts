/** Worker task: puts a layer above the files of a plugin. */
import { toBytePath } from '../../storage/byte-path.js';
import { applyDifference } from '../../storage/trees/apply-difference.js';

export function applyLayer({ difference, tree }: { readonly difference: string; readonly tree: string }): void {
  applyDifference(toBytePath(difference), toBytePath(tree));
}
