/** Limits that the kernel sets for this process. */
import { readFileSync } from 'node:fs';
import type { Ulimit } from '../../ports/container.js';

/**
 * The first lines of the bundle put the soft limit into this variable, because Node raises the limit before any code of
 * ours runs.
 */
const SOFT_LIMIT = 'ENGINED_SOFT_NOFILE';

/**
 * Returns the limits of this process that Node has changed, as they were before. Removes the variable, so that child
 * processes do not get it. Empty when nothing was changed, or when the daemon was not started by those lines.
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

/** Share of the descriptors that connections leave to containers, images and logs. */
const RESERVED = 0.25;

/**
 * Returns the highest number that a descriptor of a client's connection may have. The kernel gives the lowest free one,
 * so a high one tells how many are taken.
 */
export function highestForClients(): number {
  return openFileLimit() * (1 - RESERVED);
}
