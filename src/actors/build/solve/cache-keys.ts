/** Keys of the cache: equal for steps that would make the same. */
import { createHash } from 'node:crypto';
import type { StepWork } from './step.js';

/** Another number forgets all that was made before, when what steps make is changed. */
const VERSION = 1;

/**
 * Returns the key of a step; undefined when its result is not kept. The files of the parent are a part of it, so that a
 * record always stands on what its build has.
 */
export async function stepKey(work: StepWork): Promise<string | undefined> {
  const { step, parent } = work;
  const { identity, content } = step.operation;
  if (content === undefined) return undefined;
  return hashOf([VERSION, identity, parent?.key, parent?.layer, await content(work)]);
}

/** Returns a key for the result of a step that is not kept; later steps ask for its content. */
export function passingKey(digest: string): string {
  return hashOf([VERSION, 'passing', digest]);
}

function hashOf(value: unknown): string {
  return createHash('sha256').update(JSON.stringify(value)).digest('hex');
}
