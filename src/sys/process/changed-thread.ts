/** Tells whoever has started this thread that it is not as others are any more. */
import { workerData } from 'node:worker_threads';

/** Part of the `workerData` of a thread that may be given to others. */
export interface ThreadMark {
  /** One number in shared memory, which is 1 when the thread has changed for good. */
  readonly changed: Int32Array;
}

/** Call it before something of the calling thread changes that no task puts back: nobody else gets the thread then. */
export function markThreadChanged(): void {
  (workerData as Partial<ThreadMark> | null)?.changed?.fill(1);
}
