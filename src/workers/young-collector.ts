/**
 * Collects short-lived buffers early. V8 counts the bytes behind buffers only roughly and lets 32 MB of dead ones pile
 * up in every thread before it looks; a stream makes new ones all the time. A collection of the young generation takes
 * well under a millisecond when little is alive, and keeps that pile to a few megabytes.
 */
import { setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';

type Collect = (options: { readonly type: 'minor' }) => void;

/** Bytes of buffers that may die between two collections. */
const INTERVAL_BYTES = 4 << 20;

let collect: Collect | undefined;
let pending = 0;

/** Counts a buffer that is not used any more. */
export function bufferDied(bytes: number): void {
  pending += bytes;
  if (pending < INTERVAL_BYTES) return;
  pending = 0;
  collect ??= exposeCollector();
  collect({ type: 'minor' });
}

function exposeCollector(): Collect {
  // The flag only counts for contexts that are made after it is set.
  setFlagsFromString('--expose-gc');
  return runInNewContext('gc') as Collect;
}
