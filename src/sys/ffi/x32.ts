/** The x32 ABI: calls of the kernel with a bit in their number, which most kernels are built without. */
import { libc } from './libc.js';

// asm/unistd.h
const X32_SYSCALL_BIT = 0x40000000;
const GETPID = 39;

const syscall = libc.func<[number: number]>('long syscall(long number)');

/** Tells whether this kernel has it. Do not ask under a seccomp filter, which may end a process for such a call. */
export function hasX32(): boolean {
  return process.arch === 'x64' && syscall(X32_SYSCALL_BIT | GETPID) === process.pid;
}
