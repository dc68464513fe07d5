/** Programs that serve this process for as long as they like, and may outlive it. */
import {
  closeSync,
  constants,
  ftruncateSync,
  openSync,
  readdirSync,
  readFileSync,
  readlinkSync,
  readSync,
} from 'node:fs';
import { basename } from 'node:path';
import { libc } from '../ffi/libc.js';
import { memoryFile } from './memory-file.js';
import { openPidfd } from './pidfd.js';
import { onEnd, spawnProgram, takeStatus } from './spawn.js';

// linux/fcntl.h, asm/unistd.h (the same number everywhere)
const F_ADD_SEALS = 1033;
const F_SEAL_GROW = 4;
const SYS_PIDFD_SEND_SIGNAL = 424;
const SIGKILL = 9;
/** Nobody reads what it complains of later, so no more is kept. */
const COMPLAINT_BYTES = 4096;

const addSeals = libc.checked<[fd: number, command: number, seals: number]>(
  'fcntl',
  'int fcntl(int fd, int command, int seals)',
);
const sendSignal = libc.checked<[number: number, fd: number, signal: number, info: null, flags: number]>(
  'pidfd_send_signal',
  'long syscall(long number, int fd, int signal, void *info, uint32_t flags)',
);

export interface BackgroundProcess {
  readonly pid: number;
  /** Resolves at its end. It does not keep this process alive. */
  readonly ended: Promise<void>;
  hasEnded(): boolean;
  /** Ends it; nothing happens when it has ended. */
  kill(): void;
}

/**
 * Starts a program in a session of its own, so that no signal of a terminal ends it. `complaint` returns the beginning
 * of what it wrote to its standard error so far.
 * @param others descriptors that it has from 3 on.
 * @throws EngineError as `runProgram`.
 */
export async function startInBackground(
  file: string,
  args: readonly string[],
  others: readonly number[] = [],
): Promise<BackgroundProcess & { complaint(): string }> {
  const none = openSync('/dev/null', constants.O_RDWR);
  const errors = memoryFile('stderr', true);
  try {
    ftruncateSync(errors, COMPLAINT_BYTES);
    addSeals(errors, F_ADD_SEALS, F_SEAL_GROW);
    const pid = await spawnProgram(file, args, { stdio: [none, none, errors, ...others], hasOwnSession: true });
    let complaint: string | undefined;
    const watched = watch(pid, openPidfd(pid), () => {
      takeStatus(pid);
      complaint = textOf(errors);
      closeSync(errors);
    });
    return { ...watched, complaint: () => complaint ?? textOf(errors) };
  } catch (error) {
    closeSync(errors);
    throw error;
  } finally {
    closeSync(none);
  }
}

/**
 * Finds the processes of a program in the mount namespace of this one, by their last argument. An earlier process of
 * this program may have started them. Synchronous, so only for the start.
 */
export function findInBackground(file: string): Map<string, BackgroundProcess> {
  const found = new Map<string, BackgroundProcess>();
  const home = readlinkSync('/proc/self/ns/mnt');
  for (const name of readdirSync('/proc')) {
    if (!/^\d+$/.test(name)) continue;
    const pid = Number(name);
    let pidfd: number | undefined;
    try {
      // A process of a container can hold up whoever reads its arguments, so it is told by its namespace.
      if (readlinkSync(`/proc/${pid}/ns/mnt`) !== home || lastArgument(pid, file) === undefined) continue;
      pidfd = openPidfd(pid);
      // The descriptor is of the process that has these arguments now, also if the number went to another meanwhile.
      const argument = lastArgument(pid, file);
      if (argument === undefined) closeSync(pidfd);
      else found.set(argument, watch(pid, pidfd));
    } catch {
      // It has ended.
      if (pidfd !== undefined) closeSync(pidfd);
    }
  }
  return found;
}

function lastArgument(pid: number, file: string): string | undefined {
  const args = readFileSync(`/proc/${pid}/cmdline`, 'utf8').split('\0');
  return basename(args[0] ?? '') === file ? args.at(-2) : undefined;
}

function watch(pid: number, pidfd: number, clean?: () => void): BackgroundProcess {
  let hasEnded = false;
  const ended = new Promise<void>((resolve) =>
    onEnd(pidfd, () => {
      hasEnded = true;
      clean?.();
      resolve();
    }).unref(),
  );
  return {
    pid,
    ended,
    hasEnded: () => hasEnded,
    kill: () => {
      if (!hasEnded) sendSignal(SYS_PIDFD_SEND_SIGNAL, pidfd, SIGKILL, null, 0);
    },
  };
}

function textOf(fd: number): string {
  const bytes = Buffer.alloc(COMPLAINT_BYTES);
  const length = readSync(fd, bytes, 0, bytes.length, 0);
  return bytes.subarray(0, length).toString().replaceAll('\0', '').trim();
}
