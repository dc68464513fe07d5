/** Keys of the cache: equal for steps that would make the same. */
import { createHash } from 'node:crypto';
import type { StepWork } from './step.js';

/** Another number forgets all that was made before, when what steps make is changed. */
const VERSION = 1;

export interface StepKeys {
  /**
   * Names the step in the cache of this engine. The files of the parent are a part of it, so that a record always
   * stands on what its build has.
   */
  readonly own: string;
  /**
   * Names the step in caches that travel: the same wherever the steps before it were done, although each engine has
   * made other files of them, for example with other times.
   */
  readonly portable: string;
}

/** Returns the keys of a step; undefined when its result is not kept. */
export async function stepKeys(work: StepWork): Promise<StepKeys | undefined> {
  const { step, parent } = work;
  const { identity, content } = step.operation;
  if (content === undefined) return undefined;
  const read = await content(work);
  return {
    own: hashOf([VERSION, identity, parent?.key, parent?.layer, read]),
    portable: hashOf([VERSION, 'portable', identity, parent?.portable, read]),
  };
}

/** Returns the portable key of a result that must not be mixed with those of other builds. */
export function freshKey(layer: string | undefined): string {
  return hashOf([VERSION, 'fresh', layer]);
}

/** Returns a key for the result of a step that is not kept; later steps ask for its content. */
export function passingKey(digest: string): string {
  return hashOf([VERSION, 'passing', digest]);
}

function hashOf(value: unknown): string {
  return createHash('sha256').update(JSON.stringify(value)).digest('hex');
}
