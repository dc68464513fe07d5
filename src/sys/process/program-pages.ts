/** Lets go of the mapped pages of Node's program and its libraries: most of them only a start or a busy time needs. */
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

// dlfcn.h
const RTLD_LAZY = 1;
const RTLD_NOLOAD = 4;
const RTLD_NODELETE = 0x1000;
const RTLD_DI_LINKMAP = 2;
/** A library's name, or that of a part of Node which is in a file of its own. */
const LIBRARY = /\.(?:so(?:\.\d+)*|node)$/;

type Address = number | bigint;
const dlopen = libc.func<[path: string, flags: number], Address>('uintptr_t dlopen(const char *path, int flags)');
const dlinfo = libc.func<[handle: Address, request: number, info: Buffer]>(
  'int dlinfo(uintptr_t handle, int request, void *info)',
);
const memcpy = libc.func<[to: Buffer, from: bigint, size: number], undefined>(
  'void memcpy(void *to, uintptr_t from, size_t size)',
);

/** A part of the address space. */
export interface Mapping {
  readonly start: bigint;
  readonly length: bigint;
}

/**
 * Returns those parts of the running program, or of a library of it, in the text of /proc/PID/smaps, whose pages are
 * those of its file: nobody may write to them, and none is a copy, such as the loader makes of pages where it puts in
 * addresses.
 * @param headers is an address in the first part. From there on the parts of the file follow one another, with rising
 * places in it. What is mapped of the program elsewhere is V8's: each thread has the built-in functions among its own
 * code, and when it ends their addresses become anybody's memory.
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
    if (access.startsWith('r-') && copies === '0') found.push({ start: from, length: to - from });
  }
  return found;
}

/** The fields that follow the first line of a mapping are within this. */
const DESCRIPTION_LENGTH = 1000;

/**
 * Unmaps the pages of the program and its libraries. They are mapped again when they are needed, sixteen at a time,
 * from the page cache. The others are memory that the kernel may take for something else.
 */
export async function releaseProgramPages(): Promise<void> {
  found ??= programMappings();
  for (const { start, length } of await found) madvise(start, length, MADV_DONTNEED);
}

/** They stay as they are once a program runs. */
let found: Promise<readonly Mapping[]> | undefined;

/** Returns what can be let go of this process. */
export async function programMappings(): Promise<readonly Mapping[]> {
  const libraries = keptLibraries(String(await bytesOf('/proc/self/maps')));
  // Read after that: what a library has while it is loaded does not stay so.
  const [description, auxiliary] = await Promise.all([bytesOf('/proc/self/smaps'), bytesOf('/proc/self/auxv')]);
  const smaps = String(description);
  const headers = addressOfHeaders(auxiliary);
  const program = headers === undefined ? [] : unchangedMappings(smaps, process.execPath, headers);
  return [...program, ...libraries.flatMap(({ path, address }) => unchangedMappings(smaps, path, address))];
}

/** A kernel that was built without such a file has none. */
async function bytesOf(path: string): Promise<Buffer> {
  return readFile(path).catch(() => Buffer.alloc(0));
}

interface Library {
  readonly path: string;
  readonly address: bigint;
}

/** Returns the libraries that are loaded, in the text of /proc/PID/maps. None of them can be unloaded any more. */
function keptLibraries(maps: string): Library[] {
  const lines = maps.split('\n').filter((line) => LIBRARY.test(line));
  const paths = new Set(lines.map((line) => line.slice(line.indexOf('/'))));
  return [...paths].flatMap((path) => {
    const address = keptAddress(path);
    return address === undefined ? [] : [{ path, address }];
  });
}

/** Keeps a library loaded, once it is, and returns its address; undefined for a file that is no loaded library. */
function keptAddress(path: string): bigint | undefined {
  const handle = dlopen(path, RTLD_LAZY | RTLD_NOLOAD | RTLD_NODELETE);
  const word = Buffer.alloc(8);
  if (Number(handle) === 0 || dlinfo(handle, RTLD_DI_LINKMAP, word) !== 0) return undefined;
  // The linker's record of a library begins with its address (link.h).
  memcpy(word, word.readBigUInt64LE(), word.length);
  return word.readBigUInt64LE();
}

/** Returns where the program's headers are, in the auxiliary vector that the kernel gave the process (getauxval(3)). */
function addressOfHeaders(auxiliary: Buffer): bigint | undefined {
  for (let at = 0; at + PAIR_BYTES <= auxiliary.length; at += PAIR_BYTES)
    if (auxiliary.readBigUInt64LE(at) === AT_PHDR) return auxiliary.readBigUInt64LE(at + 8);
  return undefined;
}
