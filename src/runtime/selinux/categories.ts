/**
 * Pairs of categories. Each container has one of its own, so that none may touch the files of another one, though all
 * have the same types.
 */
import { randomInt } from 'node:crypto';
import { unavailable } from '../../errors/engine-error.js';

const CATEGORIES = 1024;
const PAIRS = (CATEGORIES * (CATEGORIES - 1)) / 2;
const SENSITIVITY = 's0';

/** The level of files that containers without a label of their own have, as the known engines give it. */
export const UNCONFINED_LEVEL = `${SENSITIVITY}:c1022,c1023`;
/** The level that every container may read and write. */
export const SHARED_LEVEL = SENSITIVITY;

/**
 * Returns a level that is not in use. The search begins at a random pair, so that a pair is used again as late as
 * possible: files of a removed container may still be somewhere.
 * @throws EngineError unavailable when all are in use.
 */
export function freeLevel(isUsed: (level: string) => boolean, first = randomInt(PAIRS)): string {
  for (let step = 0; step < PAIRS; step++) {
    const level = levelOf((first + step) % PAIRS);
    if (level !== UNCONFINED_LEVEL && !isUsed(level)) return level;
  }
  throw unavailable('all pairs of SELinux categories are in use: remove containers');
}

/** Numbers the pairs: those whose higher category is 1 come first, then those with 2, and so on. */
function levelOf(pair: number): string {
  let high = Math.floor((1 + Math.sqrt(1 + 8 * pair)) / 2);
  // The root of a large number may be off by one.
  while ((high * (high - 1)) / 2 > pair) high -= 1;
  while ((high * (high + 1)) / 2 <= pair) high += 1;
  return `${SENSITIVITY}:c${pair - (high * (high - 1)) / 2},c${high}`;
}
