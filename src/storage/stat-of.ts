import { lstatSync, type BigIntStats } from 'node:fs';
import { fsPath } from './byte-path.js';

/** Returns lstat of a byte string, with times in nanoseconds; undefined when nothing is there. For worker threads. */
export function statOf(at: string): BigIntStats | undefined {
  return lstatSync(fsPath(at), { bigint: true, throwIfNoEntry: false });
}
