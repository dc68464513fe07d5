/** Files that are only in memory, for the inputs and outputs of programs. */
import { libc } from '../ffi/libc.js';

// linux/memfd.h
const MFD_CLOEXEC = 1;
const MFD_ALLOW_SEALING = 2;

const memfdCreate = libc.checked<[name: string, flags: number]>(
  'memfd_create',
  'int memfd_create(const char *name, uint32_t flags)',
);

/**
 * Returns the descriptor of a new file, which is empty. It is gone with the last descriptor of it.
 * @param name it is seen below /proc only.
 * @param isSealable whether its size can be fixed later.
 * @throws EngineError EMFILE, ENOMEM
 */
export function memoryFile(name: string, isSealable = false): number {
  return memfdCreate(name, isSealable ? MFD_CLOEXEC | MFD_ALLOW_SEALING : MFD_CLOEXEC);
}
