/**
 * Fills memory that is free just before something is measured. A virtual machine may tell its host what has been free
 * for two seconds, and the host takes it away (VIRTIO_BALLOON_F_REPORTING). Whoever uses it next waits for the host,
 * some 1.7 s for 1 GB, ten times as long as it takes to write so much. Which engine that is would be chance. So all of
 * it goes to the page cache of a file that is one hole, and what a sample may want is freed just before it begins.
 * What cannot be filled is taken in blocks of the length that a host is told of, and kept during the sample.
 */
import { ftruncateSync, openSync, readFileSync, readSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { libc } from '../src/sys/ffi/libc.js';

/** Most of this is what the kernel wants to have at hand. */
const LEFT_FREE_BYTES = 400 * 2 ** 20;
/** The largest sample writes 1 GB, of which there may be two copies. */
const FREED_BYTES = 2 ** 31;
/** Nobody gets to its end: it is read on, once. */
const HOLE_BYTES = 2 ** 43;
/**
 * Every other piece of this length is freed: a machine tells its host of free blocks of 2 MiB, and then there are next
 * to none.
 */
const PIECE_BYTES = 2 ** 19;
const ROOM = Buffer.alloc(2 ** 20);

// linux/falloc.h
const FALLOC_FL_KEEP_SIZE = 1;
const FALLOC_FL_PUNCH_HOLE = 2;
const fallocate = libc.func<[fd: number, mode: number, from: number, bytes: number]>(
  'int fallocate(int fd, int mode, int64_t from, int64_t bytes)',
);

// linux/mman.h
const PROT_READ_WRITE = 3;
const MAP_PRIVATE_ANONYMOUS = 0x22;
const MADV_HUGEPAGE = 14;
const MADV_POPULATE_WRITE = 23;
const mmap = libc.func<[at: number, bytes: number, access: number, flags: number, fd: number, offset: number]>(
  'intptr_t mmap(intptr_t at, size_t bytes, int access, int flags, int fd, int64_t offset)',
);
const madvise = libc.func<[at: number, bytes: number, advice: number]>(
  'int madvise(intptr_t at, size_t bytes, int advice)',
);
const munmap = libc.func<[at: number, bytes: number]>('int munmap(intptr_t at, size_t bytes)');
/** Blocks of this length are told to the host, when they are free. */
const BLOCK_BYTES = 2 ** 21;
/** The power of two of the pages in such a block, by which the kernel counts the free ones. */
const BLOCK_ORDER = 9;

let taken: { readonly at: number; readonly bytes: number } | undefined;

let hole: { readonly fd: number; at: number } | undefined;

function openHole(): { readonly fd: number; at: number } {
  const path = join(tmpdir(), `bench-hole-${process.pid}`);
  const fd = openSync(path, 'wx+', 0o600);
  rmSync(path);
  ftruncateSync(fd, HOLE_BYTES);
  return { fd, at: 0 };
}

function freeBytes(): number {
  const kib = /^MemFree: +(\d+) kB$/m.exec(readFileSync('/proc/meminfo', 'latin1'))?.[1];
  return Number(kib ?? 0) * 1024;
}

/** Counts the free blocks that the host may have. */
function freeBlocks(): number {
  const zones = readFileSync('/proc/buddyinfo', 'latin1').trim().split('\n');
  const inZone = (line: string): number[] =>
    line
      .replace(/^.*zone +\S+ +/, '')
      .split(/ +/)
      .map(Number);
  const inBlocks = (count: number, order: number): number =>
    order < BLOCK_ORDER ? 0 : count * 2 ** (order - BLOCK_ORDER);
  return zones.flatMap((line) => inZone(line).map(inBlocks)).reduce((sum, count) => sum + count, 0);
}

function giveBack(): void {
  if (taken) munmap(taken.at, taken.bytes);
  taken = undefined;
}

/**
 * Takes those blocks: more would have the kernel move what lies between others. They are not kept when nearly all that
 * is free lies in them, as after a start of the machine; but then the host has given them back just now.
 */
function takeBlocks(): void {
  const bytes = freeBlocks() * BLOCK_BYTES;
  // One more, so that the first one begins at a multiple of its length.
  const at = mmap(0, bytes + BLOCK_BYTES, PROT_READ_WRITE, MAP_PRIVATE_ANONYMOUS, -1, 0);
  if (at === -1) return;
  taken = { at, bytes: bytes + BLOCK_BYTES };
  const from = Math.ceil(at / BLOCK_BYTES) * BLOCK_BYTES;
  madvise(from, bytes, MADV_HUGEPAGE);
  madvise(from, bytes, MADV_POPULATE_WRITE);
  if (freeBytes() < FREED_BYTES) giveBack();
}

/** Blocks this thread for a second, or for half a minute where much memory is free. */
export function warmMemory(): void {
  hole ??= openHole();
  giveBack();
  const { fd } = hole;
  for (let left = freeBytes() - LEFT_FREE_BYTES; left > 0; left -= ROOM.length)
    hole.at += readSync(fd, ROOM, 0, ROOM.length, hole.at);
  for (let from = Math.max(0, hole.at - 2 * FREED_BYTES); from < hole.at; from += 2 * PIECE_BYTES)
    fallocate(fd, FALLOC_FL_KEEP_SIZE | FALLOC_FL_PUNCH_HOLE, from, PIECE_BYTES);
  takeBlocks();
}
