/**
 * A thread that is killed while koffi is loaded or declares a function takes the process with it: koffi cannot throw
 * there any more. So a thread says when it must live, and who wants to kill it waits for a moment when it need not.
 */
import { setTimeout as delay } from 'node:timers/promises';

const [WAITING, BUSY, FREE, DOOMED] = [0, 1, 2, 3] as const;

/** A task's life, which the thread that runs it and the one that may end it share. */
export type Life = Int32Array<SharedArrayBuffer>;

/**
 * The lives of this thread's tasks, which may be several by turns: a kill of one ends them all. Those that are still
 * being loaded must not be killed for that alone.
 */
const own = new Map<Life, { isLoaded: boolean }>();
/** So many things are under way that a kill must not break off, whichever task began them. */
let holds = 0;

export function newLife(): Life {
  return new Int32Array(new SharedArrayBuffer(Int32Array.BYTES_PER_ELEMENT));
}

/**
 * Ends a life. `unborn`: the task never begins. `kill`: the thread may be killed now, and does nothing more that this
 * must not break off. `later`: it must live yet.
 */
export function doom(life: Life): 'unborn' | 'kill' | 'later' {
  if (Atomics.compareExchange(life, 0, WAITING, DOOMED) === WAITING) return 'unborn';
  return Atomics.compareExchange(life, 0, FREE, DOOMED) === BUSY ? 'later' : 'kill';
}

/** Ends lives, also those that are added meanwhile. Resolves when their threads may be killed. */
export async function doomAll(lives: Iterable<Life>): Promise<void> {
  while ([...lives].map(doom).includes('later')) await delay(1);
}

/**
 * Begins the life of a task of this thread with work that a kill must not break off. `end` ends it. undefined: it was
 * unborn.
 */
export async function begin<T>(life: Life, work: () => Promise<T>): Promise<T | undefined> {
  if (Atomics.compareExchange(life, 0, WAITING, BUSY) !== WAITING) return undefined;
  const task = { isLoaded: false };
  own.set(life, task);
  try {
    return await work();
  } finally {
    task.isLoaded = true;
    if (holds === 0) Atomics.store(life, 0, FREE);
  }
}

/** Ends the life of a task of this thread. */
export function end(life: Life): void {
  own.delete(life);
}

/** Does work that a kill must not break off. */
export function unkilled<T>(work: () => T): T {
  const release = keepAlive();
  try {
    return work();
  } finally {
    release();
  }
}

/** Begins what a kill must not break off. The function that is returned ends it. */
export function keepAlive(): () => void {
  holds++;
  let isKept = holds > 1;
  let doomed: Life | undefined;
  for (const [life, { isLoaded }] of own) {
    isKept ||= !isLoaded;
    if (Atomics.compareExchange(life, 0, FREE, BUSY) === DOOMED) doomed = life;
  }
  // It is killed while it waits, as soon as nothing of it must live. Where something else must not be broken off, that
  // has to end before.
  if (doomed && !isKept) {
    freeLoaded();
    Atomics.wait(doomed, 0, DOOMED);
  }
  return () => {
    holds--;
    if (holds === 0) freeLoaded();
  };
}

function freeLoaded(): void {
  for (const [life, { isLoaded }] of own) if (isLoaded) Atomics.compareExchange(life, 0, BUSY, FREE);
}
