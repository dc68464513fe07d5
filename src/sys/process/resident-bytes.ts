/** How much memory this process has at the moment. */
import { readFile } from 'node:fs/promises';
import { libc } from '../ffi/libc.js';

const PAGE_BYTES = libc.func<[]>('int getpagesize()')();

export interface ResidentBytes {
  /** Pages of this process alone. */
  readonly own: number;
  /** Pages of files, such as its program. */
  readonly mapped: number;
}

/** @throws Error without free descriptors. */
export async function residentBytes(): Promise<ResidentBytes> {
  const [, resident = 0, mapped = 0] = (await readFile('/proc/self/statm', 'latin1')).split(' ').map(Number);
  return { own: (resident - mapped) * PAGE_BYTES, mapped: mapped * PAGE_BYTES };
}
