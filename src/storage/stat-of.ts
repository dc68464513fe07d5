import type { BigIntStats } from 'node:fs';
import { quickStat } from '../sys/files/quick-stat.js';

/** Returns lstat of a byte string, with times in nanoseconds; undefined when nothing is there. For worker threads. */
export function statOf(at: string): BigIntStats | undefined {
  return quickStat(at);
}
