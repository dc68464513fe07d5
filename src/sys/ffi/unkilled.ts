/**
 * A thread that is killed while koffi is loaded or declares a function takes the process with it: koffi cannot throw
 * there any more. So a thread says when it must live, and who wants to kill it waits for a moment when it need not.
 */
import { setTimeout as delay } from 'node:timers/promises';

const [WAITING, BUSY, FREE, DOOMED] = [0, 1, 2, 3] as const;

/** A task's life, which the thread that runs it and the one that may end it share. */
export type Life = Int32Array<SharedArrayBuffer>;

/** The life of this thread's task; undefined when nobody kills it. */
let own: Life | undefined;

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

/** Begins the life of this thread's next task with work that a kill must not break off. undefined: it was unborn. */
export async function begin<T>(life: Life | undefined, work: () => Promise<T>): Promise<T | undefined> {
  own = life;
  if (life === undefined) return work();
  if (Atomics.compareExchange(life, 0, WAITING, BUSY) !== WAITING) return undefined;
  try {
    return await work();
  } finally {
    Atomics.store(life, 0, FREE);
  }
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
  const life = own;
  const before = life && Atomics.compareExchange(life, 0, FREE, BUSY);
  // It is killed while it waits.
  if (life && before === DOOMED) Atomics.wait(life, 0, DOOMED);
  return () => void (life !== undefined && before === FREE && Atomics.store(life, 0, FREE));
}
