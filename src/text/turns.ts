/**
 * Lets long work share the main thread: it is written as a generator that yields between small parts, and is resumed
 * for a few milliseconds in each turn of the event loop. All such work together gets these few milliseconds, so that
 * many clients hold others up no longer than one does.
 */

/** Work in parts, of which none takes longer than a millisecond or so. */
export type Parts<T> = Generator<void, T, void>;

const SLICE_MS = 4;

/** Does all parts at once: for work that is known to be small, and for tests. */
export function whole<T>(work: Parts<T>): T {
  for (;;) {
    const { done, value } = work.next();
    if (done) return value;
  }
}

const waiting: (() => void)[] = [];
let isTaken = false;
let until = 0;

/** The one that waits longest has the next turn of the loop. */
function nextTurn(): void {
  const next = waiting.shift();
  isTaken = next !== undefined;
  if (next === undefined) return;
  until = performance.now() + SLICE_MS;
  setImmediate(nextTurn);
  next();
}

/** Tells whether the slice of this turn is used up; when it is not, work may go on without `turn`. */
export function isTurnOver(): boolean {
  return !isTaken || performance.now() >= until;
}

/** Waits while the slice of this turn is used up. */
export async function turn(): Promise<void> {
  if (!isTurnOver()) return;
  if (!isTaken) {
    isTaken = true;
    until = performance.now() + SLICE_MS;
    setImmediate(nextTurn);
    return;
  }
  await new Promise<void>((resolve) => waiting.push(resolve));
}

/** Does the parts in turns. @param signal ends the work between two parts. @throws what the work throws. */
export async function inTurns<T>(work: Parts<T>, signal?: AbortSignal): Promise<T> {
  for (;;) {
    await turn();
    signal?.throwIfAborted();
    do {
      const { done, value } = work.next();
      if (done) return value;
    } while (performance.now() < until);
  }
}
