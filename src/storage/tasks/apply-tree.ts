/** Worker task: carries out a difference on a tree, or copies a tree into an empty directory. */
import { toBytePath } from '../byte-path.js';
import { applyDifference } from '../trees/apply-difference.js';

export function applyTree({ from, to }: { readonly from: string; readonly to: string }): void {
  applyDifference(toBytePath(from), toBytePath(to));
}
