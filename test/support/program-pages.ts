import assert from 'node:assert/strict';
import { libc } from '../../src/sys/ffi/libc.js';
import { programMappings } from '../../src/sys/process/program-pages.js';

// mman.h
const MADV_POPULATE_READ = 22;

const madvise = libc.func<[address: bigint, length: bigint, advice: number]>(
  'int madvise(uint64_t address, size_t length, int advice)',
);

/** Maps all pages of the program, as a start does, whatever a test before has let go. */
export async function mapProgram(): Promise<void> {
  for (const { start, length } of await programMappings())
    assert.equal(madvise(start, length, MADV_POPULATE_READ), 0, 'the program is not mapped');
}
