/** Worker task: fills the whole tree of a layer or a container. */
import { chmodSync, chownSync } from 'node:fs';
import type { Owner } from '../../ports/id-maps.js';
import { toBytePath } from '../byte-path.js';
import { applyDifference } from './apply-difference.js';

export interface FillInput {
  readonly tree: string;
  /** The owner of the root directory, in a tree that stands on nothing. */
  readonly owner: Owner | undefined;
  /** The lowest first. */
  readonly differences: readonly string[];
}

/** Carries out differences on a tree. */
export function fillTree({ tree, owner, differences }: FillInput): void {
  if (owner) {
    chmodSync(tree, 0o755);
    chownSync(tree, owner.uid, owner.gid);
  }
  for (const difference of differences) applyDifference(toBytePath(difference), toBytePath(tree));
}
