/**
 * Does the work for many things, a few at a time: a directory may have more entries than a process may have open files,
 * and each promise that waits costs memory.
 */

/** More would not be quicker, because the thread pool of the process has four threads. */
const WIDTH = 32;

/** Resolves when all is done; rejects as the first failure does, after which nothing more is begun. */
export async function inLanes<T>(items: Iterable<T>, work: (item: T) => Promise<unknown>): Promise<void> {
  const left = items[Symbol.iterator]();
  let hasFailed = false;
  const lane = async (): Promise<void> => {
    for (let next = left.next(); !next.done && !hasFailed; next = left.next()) {
      try {
        await work(next.value);
      } catch (error) {
        hasFailed = true;
        throw error;
      }
    }
  };
  await Promise.all(Array.from({ length: WIDTH }, lane));
}

/** Returns what becomes of each, in their order. Few are done at once. */
export async function mapInLanes<T, U>(items: readonly T[], work: (item: T) => Promise<U>): Promise<U[]> {
  if (items.length <= WIDTH) return Promise.all(items.map(work));
  const done: U[] = [];
  await inLanes(items.entries(), async ([at, item]) => {
    done[at] = await work(item);
  });
  return done;
}
