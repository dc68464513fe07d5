/** Sets the owner of files that a thread makes (setfsuid(2)). */
import type { Owner } from '../../ports/id-maps.js';
import { libc } from '../ffi/libc.js';
import { markThreadChanged } from '../process/changed-thread.js';

// linux/prctl.h, linux/securebits.h
const PR_SET_SECUREBITS = 28;
const SECBIT_NO_SETUID_FIXUP = 1 << 2;

const prctl = libc.checked<[option: number, value: number]>('prctl', 'int prctl(int option, unsigned long value)');
const setfsuid = libc.func<[uid: number]>('int setfsuid(unsigned int uid)');
const setfsgid = libc.func<[gid: number]>('int setfsgid(unsigned int gid)');

/** The owner of files that the calling thread makes now. */
let current: Owner = { uid: 0, gid: 0 };

/**
 * Files that the calling thread makes from now on are this owner's; what it may do stays as it is. A file system that
 * was mounted in a user namespace takes no files of owners that are not mapped there.
 *
 * Tasks that take turns in a thread call it before each of their turns.
 */
export function makeFilesAs({ uid, gid }: Owner): void {
  if (uid === current.uid && gid === current.gid) return;
  markThreadChanged();
  // Another user would lose its rights over the files of others.
  prctl(PR_SET_SECUREBITS, SECBIT_NO_SETUID_FIXUP);
  setfsgid(gid);
  setfsuid(uid);
  current = { uid, gid };
}
