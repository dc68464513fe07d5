/**
 * Collects short-lived buffers early. V8 counts the bytes behind buffers only roughly and lets 32 MB of dead ones pile
 * up in every thread before it looks; a stream makes new ones all the time. A collection of the young generation takes
 * well under a millisecond when little is alive, and keeps that pile to a few megabytes. A buffer that two of these
 * found in use is old, however soon it dies then: in threads, whose heaps are small, these are collected as well.
 */
import { getHeapStatistics, setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';
import { isMainThread } from 'node:worker_threads';

/** Collects the young generation, or everything: an option for that is not known to each version of V8. */
type Collect = (options?: { readonly type: 'minor' }) => void;

/** Bytes of buffers that may die between two collections. */
const INTERVAL_BYTES = 4 << 20;
/** Bytes of old buffers that may pile up: a collection of a thread's whole heap takes some milliseconds. */
const OLD_BYTES = 6 << 20;

let collect: Collect | undefined;
let pending = 0;
/** The whole heap is collected when its buffers have more bytes than this; undefined: to be found anew. */
let limit: number | undefined;

/** Counts a buffer that is not used any more. */
export function bufferDied(bytes: number): void {
  pending += bytes;
  if (pending < INTERVAL_BYTES) return;
  pending = 0;
  collect ??= exposeCollector();
  collect({ type: 'minor' });
  // The main thread has a large heap, and others wait for it.
  if (!isMainThread) collectOld(collect);
}

function collectOld(run: Collect): void {
  // Another thread frees what a collection has found, so the bytes are known at the next one.
  const { external_memory: bytes } = getHeapStatistics();
  limit ??= bytes + OLD_BYTES;
  if (bytes < limit) return;
  run();
  limit = undefined;
}

function exposeCollector(): Collect {
  // The flag only counts for contexts that are made after it is set.
  setFlagsFromString('--expose-gc');
  return runInNewContext('gc') as Collect;
}
