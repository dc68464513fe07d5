/**
 * Network namespaces. unshare(2) and setns(2) move only the calling thread, so every move here is one synchronous block
 * that ends where it began; what is opened inside stays inside.
 */
import { closeSync, mkdirSync, openSync, readdirSync } from 'node:fs';
import { dirname } from 'node:path';
import { libc } from '../ffi/libc.js';
import { isThere, removeFileNow } from '../files/remove-file.js';

// linux/sched.h, linux/mount.h
const CLONE_NEWNET = 0x4000_0000;
const MS_BIND = 0x1000;
const MNT_DETACH = 2;

const unshare = libc.checked<[flags: number]>('unshare', 'int unshare(int flags)');
const setns = libc.checked<[fd: number, type: number]>('setns', 'int setns(int fd, int type)');
const mount = libc.checked<[source: string, target: string, type: null, flags: number, data: null]>(
  'mount',
  'int mount(const char *source, const char *target, const char *type, unsigned long flags, const void *data)',
);
const UMOUNT = 'int umount2(const char *target, int flags)';
const umount = libc.func<[target: string, flags: number]>(UMOUNT);
const umountLater = libc.pooled<[target: string, flags: number]>(UMOUNT);

/**
 * Calls `inside` while `enter` has moved the thread out of its own namespace. Throws what `inside` throws, after the
 * way back.
 */
function away<T>(enter: () => void, inside: () => T): T {
  const home = openSync('/proc/thread-self/ns/net', 'r');
  try {
    enter();
    try {
      return inside();
    } finally {
      setns(home, CLONE_NEWNET);
    }
  } finally {
    closeSync(home);
  }
}

/**
 * Makes a network namespace, keeps it alive by a bind mount at `path`, and runs `inside` in it (about 0.5 ms).
 * @throws EngineError code EPERM, EEXIST; nothing is left then.
 */
export function createNetns<T>(path: string, inside: () => T): T {
  makePlace(path);
  try {
    return away(
      () => unshare(CLONE_NEWNET),
      () => {
        mount('/proc/thread-self/ns/net', path, null, MS_BIND, null);
        return inside();
      },
    );
  } catch (error) {
    removeNetnsNow(path);
    throw error;
  }
}

/** As `createNetns` with the namespace that a process has. @throws EngineError code ESRCH, ENOENT when it has ended. */
export function keepNetns<T>(path: string, pid: number, inside: () => T): T {
  makePlace(path);
  try {
    mount(`/proc/${pid}/ns/net`, path, null, MS_BIND, null);
    return inNetns(path, inside);
  } catch (error) {
    removeNetnsNow(path);
    throw error;
  }
}

function makePlace(path: string): void {
  mkdirSync(dirname(path), { recursive: true, mode: 0o711 });
  closeSync(openSync(path, 'wx', 0o444));
}

/** Runs a synchronous function inside the namespace that is mounted at `path`. */
export function inNetns<T>(path: string, inside: () => T): T {
  const there = openSync(path, 'r');
  try {
    return away(() => setns(there, CLONE_NEWNET), inside);
  } finally {
    closeSync(there);
  }
}

/**
 * Unmounts and deletes a namespace; the kernel ends it when its last process is gone. Idempotent, but nothing may be
 * made at `path` meanwhile. The kernel waits for a grace period of RCU in an umount, 10 ms when it has much to do.
 */
export async function removeNetns(path: string): Promise<void> {
  if (!isThere(path)) return;
  // Whatever umount says (not mounted, not there), the file must go.
  await umountLater(path, MNT_DETACH);
  removeFileNow(path);
}

/** Does the same as `removeNetns` at once: for one that could not be made, or that nothing else waits for. */
export function removeNetnsNow(path: string): void {
  umount(path, MNT_DETACH);
  removeFileNow(path);
}

/** Returns the names of the namespaces kept in a directory. */
export function listNetns(directory: string): string[] {
  try {
    return readdirSync(directory);
  } catch {
    return [];
  }
}
