/** Descriptors of processes: unlike a number, a descriptor never means another process, and it tells how it ended. */
import { readFileSync } from 'node:fs';
import { libc } from '../ffi/libc.js';

/** asm/unistd.h; the same numbers everywhere. */
const SYS_PIDFD_SEND_SIGNAL = 424;
const SYS_PIDFD_OPEN = 434;
const SYS_PIDFD_GETFD = 438;
/** linux/pidfd.h: `_IOWR(0xFF, 11, struct pidfd_info)` with the first form of the structure. */
const PIDFD_GET_INFO = 0xc040ff0b;
const INFO_BYTES = 64;
/** In `mask`, the first member: what is asked for, then what was answered. */
const PIDFD_INFO_EXIT = 8n;
const EXIT_CODE_OFFSET = 60;

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

const pidfdSendSignal = libc.checked<[number: number, pidfd: number, signal: number, info: null, flags: number]>(
  'pidfd_send_signal',
  'long syscall(long number, int pidfd, int signal, void *info, uint32_t flags)',
);

/** Sends a signal to a process. @throws EngineError code ESRCH when it has ended, EPERM. */
export function sendSignal(pidfd: number, signal: number): void {
  pidfdSendSignal(SYS_PIDFD_SEND_SIGNAL, pidfd, signal, null, 0);
}

const pidfdGetfd = libc.checked<[number: number, pidfd: number, fd: number, flags: number]>(
  'pidfd_getfd',
  'long syscall(long number, int pidfd, int fd, uint32_t flags)',
);
const ioctl = libc.func<[fd: number, request: number, argument: Buffer]>(
  'int ioctl(int fd, unsigned long request, void *argument)',
);

/**
 * Returns a new descriptor, closed on exec, for what a process has open (Linux 5.6). The caller closes it, and needs
 * the right to trace that process.
 * @throws EngineError code EBADF when it has no such descriptor, ESRCH when it has ended, EPERM, ENOSYS.
 */
export function copyFdOf(pidfd: number, fd: number): number {
  return pidfdGetfd(SYS_PIDFD_GETFD, pidfd, fd, 0);
}

/**
 * Returns the exit code of a process that has ended, as shells count: 128 and the number of the signal that ended it.
 * When it was waited for, the kernel keeps the code for those who have a descriptor since before the end.
 * @returns undefined when it has not ended, or was waited for with a kernel before Linux 6.15.
 */
export function exitCodeOf(pidfd: number): number | undefined {
  const info = Buffer.alloc(INFO_BYTES);
  info.writeBigUInt64LE(PIDFD_INFO_EXIT);
  const isTold = ioctl(pidfd, PIDFD_GET_INFO, info) >= 0 && (info.readBigUInt64LE() & PIDFD_INFO_EXIT) !== 0n;
  const status = isTold ? info.readInt32LE(EXIT_CODE_OFFSET) : statusOfZombie(pidfd);
  if (status === undefined) return undefined;
  const signal = status & 0x7f;
  return signal === 0 ? (status >> 8) & 0xff : 128 + signal;
}

/**
 * Returns how a process has ended that nobody has waited for yet: its parent may have been killed, and whoever is the
 * first process of a container may leave that to nobody.
 */
function statusOfZombie(pidfd: number): number | undefined {
  try {
    const pid = pidOf(pidfd);
    // Everything up to the name may hold spaces (man 5 proc).
    const fields = readFileSync(`/proc/${pid}/stat`, 'utf8')
      .replace(/^.*\) /s, '')
      .split(' ');
    const [state, threads, status] = [fields[0], fields[17], fields[49]];
    // Other threads may outlive the first one. The number is not another process's if it is still this one's.
    return state === 'Z' && threads === '1' && pidOf(pidfd) === pid ? Number(status) : undefined;
  } catch {
    return undefined; // It was waited for.
  }
}

function pidOf(pidfd: number): string | undefined {
  return /^Pid:\t(\d+)$/m.exec(readFileSync(`/proc/self/fdinfo/${pidfd}`, 'utf8'))?.[1];
}
