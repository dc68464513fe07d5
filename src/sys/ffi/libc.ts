/** Declares system calls that Node does not offer, and other functions of the C library. Only this file has it. */
import { getSystemErrorMap } from 'node:util';
import koffi from 'koffi';
import { internal, type EngineError } from '../../errors/engine-error.js';
import { NativeLibrary } from './native-library.js';

const library = NativeLibrary.ofProcess();

export const libc = {
  /** As `NativeLibrary.func`. */
  // oxlint-disable-next-line typescript/no-unnecessary-type-parameters -- only the caller knows the prototype
  func<Args extends readonly unknown[], Result = number>(prototype: string): (...args: Args) => Result {
    return library.func<Args, Result>(prototype);
  },

  /**
   * As `func`, for functions that return -1 and set errno: the result is never negative.
   * @throws EngineError as `syscallError` makes it.
   */
  // oxlint-disable-next-line typescript/no-unnecessary-type-parameters -- only the caller knows the prototype
  checked<Args extends readonly unknown[]>(name: string, prototype: string): (...args: Args) => number {
    const call = libc.func<Args>(prototype);
    return (...args) => {
      const result = call(...args);
      if (result < 0) throw syscallError(name, koffi.errno());
      return result;
    };
  },

  /** As `NativeLibrary.pooled`. */
  // oxlint-disable-next-line typescript/no-unnecessary-type-parameters -- only the caller knows the prototype
  pooled<Args extends readonly unknown[]>(prototype: string): (...args: Args) => Promise<number> {
    return library.pooled<Args>(prototype);
  },

  /**
   * As `checked`, on a thread of libuv's pool: for calls that may take milliseconds, but not wait for others' doings.
   */
  // oxlint-disable-next-line typescript/no-unnecessary-type-parameters -- only the caller knows the prototype
  async<Args extends readonly unknown[]>(name: string, prototype: string): (...args: Args) => Promise<number> {
    const call = library.declare(prototype);
    return (...args) =>
      new Promise((resolve, reject) => {
        call.async(...args, (error: unknown, result: number) => {
          if (error !== null) reject(error);
          else if (result < 0) reject(syscallError(name, koffi.errno()));
          else resolve(result);
        });
      });
  },

  /**
   * Returns the address of a buffer's bytes, for structures that point to others. The buffer must stay referenced until
   * after the call.
   */
  addressOf(buffer: Uint8Array): bigint {
    return koffi.address(buffer);
  },

  /** Returns errno of the last call made through `func` on this thread. */
  errno(): number {
    return koffi.errno();
  },
};

/** Returns a path as C functions want it: koffi terminates a string, but not the bytes of a Buffer. */
export function cPath(path: string | Buffer): string | Buffer {
  return typeof path === 'string' ? path : Buffer.concat([path, NUL]);
}

const NUL = Buffer.alloc(1);

/** Node has no names for these errors. */
const UNNAMED = new Map<number, [string, string]>([[109, ['ETOOMANYREFS', 'too many references: cannot splice']]]);

/**
 * The error for a failed system call: kind `internal` (callers that expect an errno wrap it into what it means to
 * them), code the errno's name such as `ENOENT`, details `{ syscall, errno }`.
 */
export function syscallError(name: string, errno: number): EngineError {
  const [code, text] = getSystemErrorMap().get(-errno) ?? UNNAMED.get(errno) ?? [`errno ${errno}`, 'unknown error'];
  return internal(`${name}: ${text} (${code})`, { code, details: { syscall: name, errno } });
}
