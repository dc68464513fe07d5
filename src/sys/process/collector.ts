/** V8's garbage collector, for moments of which we know more than V8. */
import { setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';

/** Collects the young generation, or everything: an option for that is not known to each version of V8. */
export type Collect = (options?: { readonly type: 'minor' }) => void;

let collect: Collect | undefined;

/**
 * Returns the collector of this thread. The flags of V8 belong to all threads, so another one that does the same just
 * now may have taken the flag back: then there is none, and the next call tries again.
 */
export function collector(): Collect | undefined {
  if (collect) return collect;
  // It counts for contexts that are made after it is set.
  setFlagsFromString('--expose-gc');
  collect = runInNewContext('globalThis.gc') as Collect | undefined;
  // V8 refuses the kept code of Node's modules as long as the flag is set.
  setFlagsFromString('--no-expose-gc');
  return collect;
}
