/** Limits that the kernel sets for this process. */
import { readFileSync } from 'node:fs';
import type { Ulimit } from '../ports/container.js';

/** The variable in which the first lines of the bundle leave the soft limit: Node raises it before any code of ours runs. */
const SOFT_LIMIT = 'ENGINED_SOFT_NOFILE';

/**
 * What Node changed of the limits that this process was started with. Takes the variable away: it is not for others.
 * Empty when nothing was changed, or when the daemon was not started by those lines.
 */
export function inheritedLimits(): Ulimit[] {
  const Soft = Number(process.env[SOFT_LIMIT]);
  delete process.env[SOFT_LIMIT];
  const Hard = openFileLimit();
  return Number.isInteger(Soft) && Soft < Hard
    ? [{ Name: 'nofile', Soft, Hard: Number.isFinite(Hard) ? Hard : -1 }]
    : [];
}

/** Descriptors that may be open at one time (RLIMIT_NOFILE; Node raises it to the hard limit as it starts). */
export function openFileLimit(): number {
  const soft = /^Max open files +(\S+)/m.exec(readFileSync('/proc/self/limits', 'utf8'))?.[1];
  return soft === undefined || soft === 'unlimited' ? Number.POSITIVE_INFINITY : Number(soft);
}
