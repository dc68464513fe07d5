/**
 * Collects short-lived buffers early. V8 counts the bytes behind buffers only roughly and lets 32 MB of dead ones pile
 * up in every thread before it looks; a stream makes new ones all the time. A collection of the young generation takes
 * well under a millisecond when little is alive, and keeps that pile to a few megabytes. A buffer that two of these
 * found in use is old, however soon it dies then: in threads, whose heaps are small, these are collected as well.
 */
import { getHeapStatistics } from 'node:v8';
import { isMainThread } from 'node:worker_threads';
import { type Collect, collector } from '../sys/process/collector.js';
import { freeBuffer } from '../sys/process/free-buffer.js';
import { trimHeaps } from '../sys/process/memory.js';

/** Bytes of buffers that may die between two collections. */
const INTERVAL_BYTES = 4 << 20;
/** Bytes of old buffers that may pile up: a collection of a thread's whole heap takes some milliseconds. */
const OLD_BYTES = 6 << 20;

/** After so many collections what the heaps of the C library hold for nothing is given back, too. */
const COLLECTIONS_PER_TRIM = 16;
/** The same after so many bytes that were freed. */
const FREED_BYTES_PER_TRIM = 32 << 20;
/** A task that leaves more than this behind has it collected: its thread may have nothing to do for seconds. */
const LEFT_BYTES = 6 << 20;

let pending = 0;
/** Bytes of chunks. */
let freed = 0;
let collections = 0;
/** Their number at the end of the last task. */
let collectionsBefore = 0;
/** The whole heap is collected when its buffers have more bytes than this; undefined: to be found anew. */
let limit: number | undefined;

/** Counts a buffer that is not used any more. */
export function bufferDied(bytes: number): void {
  pending += bytes;
  if (pending < INTERVAL_BYTES) return;
  pending = 0;
  const collect = collector();
  if (collect === undefined) return;
  collect({ type: 'minor' });
  collections += 1;
  // The main thread has a large heap, and others wait for it.
  if (isMainThread) return;
  collectOld(collect);
  if (collections % COLLECTIONS_PER_TRIM === 0) trimHeaps();
}

/** Frees a chunk that is not used any more, or counts it when it is a part of something. */
export function chunkDied(chunk: Buffer): void {
  const bytes = chunk.length;
  if (!freeBuffer(chunk)) return bufferDied(bytes);
  freed += bytes;
  if (freed < FREED_BYTES_PER_TRIM) return;
  freed = 0;
  // The objects around chunks are garbage all the same, and so are other buffers.
  bufferDied(INTERVAL_BYTES);
  trimHeaps();
}

/** Gives back what a task of this thread has left, if that may be much. Call it at the end of a task. */
export function collectLeft(): void {
  if (collections === collectionsBefore) return;
  collectionsBefore = collections;
  if (getHeapStatistics().external_memory > LEFT_BYTES) {
    collector()?.();
    limit = undefined;
  }
  trimHeaps();
}

function collectOld(run: Collect): void {
  // Another thread frees what a collection has found, so the bytes are known at the next one.
  const { external_memory: bytes } = getHeapStatistics();
  limit ??= bytes + OLD_BYTES;
  if (bytes < limit) return;
  run();
  limit = undefined;
}
