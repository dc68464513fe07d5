/** The user namespace of this process: whether it is the machine's, and which ids it has. */
import { readFileSync } from 'node:fs';

/** In the initial user namespace /proc/self/uid_map has this mapping and no other. */
const WHOLE_RANGE = /^\s*0\s+0\s+4294967295\s*$/;

let isNested: boolean | undefined;

/**
 * Returns whether the process is in a user namespace that somebody made, in which root may do less than on the machine:
 * set no attributes `trusted.*`, make no device nodes. @throws Error when /proc is not mounted.
 */
export function isInUserNamespace(): boolean {
  return (isNested ??= !WHOLE_RANGE.test(readFileSync('/proc/self/uid_map', 'utf8')));
}

/** Returns how many ids the user namespace of this process has, without gaps from 0 on. */
export function countIds(kind: 'uid' | 'gid'): number {
  const ranges = readFileSync(`/proc/self/${kind}_map`, 'utf8')
    .trim()
    .split('\n')
    .map((line) => line.trim().split(/ +/).map(Number))
    .toSorted(([a = 0], [b = 0]) => a - b);
  let next = 0;
  for (const [first = 0, , count = 0] of ranges) {
    if (first > next) break;
    next = first + count;
  }
  return next;
}

/** Returns the user's id outside of the namespace. */
export function outerUser(): number {
  const parent = Number(process.env['ROOTLESSKIT_PARENT_EUID']);
  if (process.env['ROOTLESSKIT_PARENT_EUID'] !== undefined && Number.isInteger(parent)) return parent;
  return Number(/^\s*0\s+(\d+)/.exec(readFileSync('/proc/self/uid_map', 'utf8'))?.[1] ?? 0);
}
