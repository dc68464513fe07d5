/** Worker task: carries out a difference on a tree, or copies a tree into an empty directory. */
import { toBytePath } from '../byte-path.js';
import { applyDifference } from '../trees/apply-difference.js';

export function applyToTree({ difference, tree }: { readonly difference: string; readonly tree: string }): void {
  applyDifference(toBytePath(difference), toBytePath(tree));
}
