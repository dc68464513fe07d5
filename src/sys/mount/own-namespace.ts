/** A mount namespace for one piece of work of a thread: nobody else sees what it mounts, and a crash leaves nothing. */
import { constants } from 'node:fs';
import { libc } from '../ffi/libc.js';
import { closeFd } from '../files/fd.js';

// linux/sched.h
const CLONE_FS = 0x200;
const CLONE_NEWNS = 0x20000;
// linux/mount.h
const MS_REC = 16384;
const MS_PRIVATE = 1 << 18;
const CLOEXEC = 0o2000000;

/** open(2) as Node does not offer it, with `O_PATH`. @throws EngineError with the errno's name as code. */
export const open = libc.checked<[path: string, flags: number]>('open', 'int open(const char *path, int flags)');
const unshare = libc.checked<[flags: number]>('unshare', 'int unshare(int flags)');
const setns = libc.checked<[fd: number, type: number]>('setns', 'int setns(int fd, int nstype)');
const mount = libc.checked<[source: null, target: string, type: null, flags: number, data: null]>(
  'mount',
  'int mount(const char *source, const char *target, const char *type, unsigned long flags, const void *data)',
);

/**
 * Calls `work` in a new mount namespace, and brings the calling thread, which must be a worker's, back. What `work`
 * mounts is gone then, unless it is copied to a descriptor. @throws what `work` throws; EngineError code EPERM.
 */
export function inOwnMountNamespace<T>(work: () => T): T {
  const home = open('/proc/thread-self/ns/mnt', constants.O_RDONLY | CLOEXEC);
  let isAway = false;
  try {
    // A thread can change its namespace only when root and working directory are its own.
    unshare(CLONE_FS);
    unshare(CLONE_NEWNS);
    isAway = true;
    mount(null, '/', null, MS_REC | MS_PRIVATE, null);
    return work();
  } finally {
    if (isAway) setns(home, CLONE_NEWNS);
    closeFd(home);
  }
}
