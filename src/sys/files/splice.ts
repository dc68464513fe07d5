/** Moves bytes from a pipe into a file without taking them into this process. */
import { libc, syscallError } from '../ffi/libc.js';

// linux/splice.h
const SPLICE_F_NONBLOCK = 2;
const EAGAIN = 11;

const splice = libc.func<
  [from: number, none: null, to: number, position: BigInt64Array, length: number, flags: number]
>('int64_t splice(int from, void *none, int to, void *position, size_t length, uint32_t flags)');
const place = new BigInt64Array(1);

/**
 * Moves up to `length` bytes to this position of a file, which must not be open for appending. At every instant a byte
 * is in the pipe or in the file, also when this process is killed meanwhile; the file grows by what has left the pipe.
 * @returns how many bytes; 0 when no process has the pipe open for writing, undefined when nothing is there yet.
 * @throws EngineError code ENOSPC, EINVAL (the file system cannot do it) and such.
 */
export function spliceToFile(pipe: number, file: number, position: number, length: number): number | undefined {
  place[0] = BigInt(position);
  const count = splice(pipe, null, file, place, length, SPLICE_F_NONBLOCK);
  if (count >= 0) return count;
  const errno = libc.errno();
  if (errno === EAGAIN) return undefined;
  throw syscallError('splice', errno);
}
