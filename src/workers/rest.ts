/**
 * Makes the heap of a thread small when it rests: what tasks have left is of no use to others, and V8 would keep it
 * until the next ones have filled a heap of many megabytes. V8 also lets go of code that it has made fast, so a thread
 * that is kept for more tasks of the same kind stays as it is.
 */
import { getHeapStatistics } from 'node:v8';
import { releaseMemory } from '../sys/process/memory.js';

/** No other task has begun for so long. A thread that its pool does not need any more is spare then. */
const REST_MS = 50;
/** Less than this is not worth the milliseconds that a collection takes. */
const WORTHWHILE_BYTES = 1 << 20;

let running = 0;
let timer: NodeJS.Timeout | undefined;
/** Bytes that were in use after the last collection. */
let kept = 0;

/** Is told that a task begins. */
export function taskBegins(): void {
  running += 1;
  clearTimeout(timer);
}

/** Is told that a task has ended, and whether the thread is kept for the next one of its kind. */
export function taskEnds(isKept: boolean): void {
  running -= 1;
  if (running === 0 && !isKept) timer = setTimeout(rest, REST_MS).unref();
}

function rest(): void {
  if (getHeapStatistics().used_heap_size <= kept + WORTHWHILE_BYTES) return;
  releaseMemory();
  kept = getHeapStatistics().used_heap_size;
}
