/** Lets go of the mapped pages of Node's own program, most of which only a start or a busy time needs. */
import { readFile } from 'node:fs/promises';
import { libc } from '../ffi/libc.js';

// mman.h
const MADV_DONTNEED = 4;

const madvise = libc.func<[address: bigint, length: bigint, advice: number]>(
  'int madvise(uint64_t address, size_t length, int advice)',
);

/** A part of the address space. */
export interface Mapping {
  readonly start: bigint;
  readonly length: bigint;
}

/**
 * Returns the mappings of a file, in the text of /proc/PID/smaps, whose pages are those of the file: nobody may write
 * to them, and none is a copy, such as the loader makes of pages where it puts in addresses.
 */
export function unchangedMappings(smaps: string, path: string): Mapping[] {
  const found: Mapping[] = [];
  const end = ` ${path}\n`;
  for (let at = smaps.indexOf(end); at >= 0; at = smaps.indexOf(end, at + 1)) {
    const [range = '', access = ''] = smaps.slice(smaps.lastIndexOf('\n', at) + 1, at).split(' ', 2);
    const copies = /\nAnonymous: +(\d+) kB\n/.exec(smaps.slice(at, at + DESCRIPTION_LENGTH))?.[1];
    const [from, to] = range.split('-').map((address) => BigInt(`0x${address}`));
    if (from === undefined || to === undefined || access.includes('w') || copies !== '0') continue;
    found.push({ start: from, length: to - from });
  }
  return found;
}

/** The fields that follow the first line of a mapping are within this. */
const DESCRIPTION_LENGTH = 1000;

/**
 * Unmaps the pages of the program. They are mapped again when they are needed, sixteen at a time, from the page cache.
 * The others are memory that the kernel may take for something else.
 */
export async function releaseProgramPages(): Promise<void> {
  found ??= findMappings();
  for (const { start, length } of await found) madvise(start, length, MADV_DONTNEED);
}

/** They stay as they are once a program runs. */
let found: Promise<readonly Mapping[]> | undefined;

async function findMappings(): Promise<readonly Mapping[]> {
  // A kernel that was built without this file has none.
  const smaps = await readFile('/proc/self/smaps', 'latin1').catch(() => '');
  return unchangedMappings(smaps, process.execPath);
}
