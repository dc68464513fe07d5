/** Advisory locks, which end with the process, however it ends. */
import { isEngineError } from '../../errors/engine-error.js';
import { libc } from '../ffi/libc.js';

// flock(2): a lock is of the open file.
const LOCK_EX = 2;
const LOCK_NB = 4;
const flock = libc.checked<[fd: number, operation: number]>('flock', 'int flock(int fd, int operation)');

/** Locks an open file until it is closed; false when somebody else has it. */
export function tryLock(fd: number): boolean {
  try {
    flock(fd, LOCK_EX | LOCK_NB);
    return true;
  } catch (error) {
    if (isEngineError(error) && error.code === 'EAGAIN') return false;
    throw error;
  }
}
