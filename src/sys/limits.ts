/** Limits that the kernel sets for this process. */
import { readFileSync } from 'node:fs';

/** Descriptors that may be open at one time (RLIMIT_NOFILE; Node raises it to the hard limit as it starts). */
export function openFileLimit(): number {
  const soft = /^Max open files +(\S+)/m.exec(readFileSync('/proc/self/limits', 'utf8'))?.[1];
  return soft === undefined || soft === 'unlimited' ? Number.POSITIVE_INFINITY : Number(soft);
}
