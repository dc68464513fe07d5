/** Worker task: makes the difference between a container, whose files are a whole tree, and what is below it. */
import { mkdirSync } from 'node:fs';
import { toBytePath } from '../byte-path.js';
import { makeDifference } from './make-difference.js';

export interface CompareInput {
  readonly tree: string;
  readonly below: readonly string[];
  /** Where the difference is made; nothing is there yet. */
  readonly difference: string;
  /** Files need nothing in them. */
  readonly isShape: boolean;
}

export function compareTrees({ tree, below, difference, isShape }: CompareInput): void {
  mkdirSync(difference);
  makeDifference(toBytePath(tree), below.map(toBytePath), toBytePath(difference), isShape);
}
