/** Descriptors of processes: unlike a number, a descriptor never means another process. */
import { libc } from '../ffi/libc.js';

/** asm/unistd.h; the same number everywhere. */
const SYS_PIDFD_OPEN = 434;

const pidfdOpen = libc.checked<[number: number, pid: number, flags: number]>(
  'pidfd_open',
  'long syscall(long number, int pid, uint32_t flags)',
);

/**
 * Returns a descriptor, closed on exec, that can be read from when the process has ended. The caller closes it.
 * @throws EngineError code ESRCH when there is no such process, EMFILE.
 */
export function openPidfd(pid: number): number {
  return pidfdOpen(SYS_PIDFD_OPEN, pid, 0);
}
