/**
 * Makes the death of a process invisible to its parent: the tracer of a process hears of it first, and the parent only
 * when the tracer has taken note. A parent that waits for the process, as a shim does, goes on as if it lived.
 */
import { libc } from '../../src/sys/ffi/libc.js';

// linux/ptrace.h and linux/wait.h
const PTRACE_SEIZE = 0x4206;
const WALL = 0x40000000;

const ptrace = libc.checked<[request: number, pid: number, address: null, data: null]>(
  'ptrace',
  'long ptrace(int request, int pid, void *address, void *data)',
);
const waitpid = libc.checked<[pid: number, status: null, options: number]>(
  'waitpid',
  'int waitpid(int pid, void *status, int options)',
);

/** Kills a process behind its parent's back; returns what lets the parent know. */
export function killUnseen(pid: number): () => void {
  ptrace(PTRACE_SEIZE, pid, null, null);
  process.kill(pid, 'SIGKILL');
  return () => void waitpid(pid, null, WALL);
}
