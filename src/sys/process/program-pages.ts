/** Lets go of the mapped pages of Node's own program, most of which only a start or a busy time needs. */
import { readFile } from 'node:fs/promises';
import { libc } from '../ffi/libc.js';

// auxvec.h
const AT_PHDR = 3n;
const PAIR_BYTES = 16;
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
 * Returns those parts of the running program, in the text of /proc/PID/smaps, whose pages are those of its file: nobody
 * may write to them, and none is a copy, such as the loader makes of pages where it puts in addresses.
 * @param headers is an address in the first part. From there on the parts of the program follow one another, with
 * rising places in the file. What is mapped of the file elsewhere is V8's: each thread has the built-in functions among
 * its own code, and when it ends their addresses become anybody's memory.
 */
export function unchangedMappings(smaps: string, path: string, headers: bigint): Mapping[] {
  const found: Mapping[] = [];
  const end = ` ${path}\n`;
  let place = -1;
  for (let at = smaps.indexOf(end); at >= 0; at = smaps.indexOf(end, at + 1)) {
    const words = smaps.slice(smaps.lastIndexOf('\n', at) + 1, at).split(' ', 3);
    const [range = '', access = '', offset = ''] = words;
    const copies = /\nAnonymous: +(\d+) kB\n/.exec(smaps.slice(at, at + DESCRIPTION_LENGTH))?.[1];
    const [from, to] = range.split('-').map((address) => BigInt(`0x${address}`));
    if (from === undefined || to === undefined || to <= headers) continue;
    if (place < 0 && from > headers) break;
    if (Number.parseInt(offset, 16) <= place) break;
    place = Number.parseInt(offset, 16);
    if (!access.includes('w') && copies === '0') found.push({ start: from, length: to - from });
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
  found ??= programMappings();
  for (const { start, length } of await found) madvise(start, length, MADV_DONTNEED);
}

/** They stay as they are once a program runs. */
let found: Promise<readonly Mapping[]> | undefined;

/** Returns what can be let go of this process. */
export async function programMappings(): Promise<readonly Mapping[]> {
  // A kernel that was built without these files has none.
  const [smaps, auxiliary] = await Promise.all(
    ['/proc/self/smaps', '/proc/self/auxv'].map((path) => readFile(path).catch(() => Buffer.alloc(0))),
  );
  const headers = addressOfHeaders(auxiliary ?? Buffer.alloc(0));
  return headers === undefined ? [] : unchangedMappings(String(smaps), process.execPath, headers);
}

/** Returns where the program's headers are, in the auxiliary vector that the kernel gave the process (getauxval(3)). */
function addressOfHeaders(auxiliary: Buffer): bigint | undefined {
  for (let at = 0; at + PAIR_BYTES <= auxiliary.length; at += PAIR_BYTES)
    if (auxiliary.readBigUInt64LE(at) === AT_PHDR) return auxiliary.readBigUInt64LE(at + 8);
  return undefined;
}
