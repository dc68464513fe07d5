/**
 * Fills memory that is free just before something is measured. A virtual machine may tell its host what has been free
 * for two seconds, and the host takes it away (VIRTIO_BALLOON_F_REPORTING). Whoever uses it next waits for the host,
 * some 1.7 s for 1 GB, ten times as long as it takes to write so much. Which engine that is would be chance. So all of
 * it goes to the page cache of a file that is one hole, and what a sample may want is freed just before it begins.
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

/** Blocks this thread for a second, or for half a minute where much memory is free. */
export function warmMemory(): void {
  hole ??= openHole();
  const { fd } = hole;
  for (let left = freeBytes() - LEFT_FREE_BYTES; left > 0; left -= ROOM.length)
    hole.at += readSync(fd, ROOM, 0, ROOM.length, hole.at);
  for (let from = Math.max(0, hole.at - 2 * FREED_BYTES); from < hole.at; from += 2 * PIECE_BYTES)
    fallocate(fd, FALLOC_FL_KEEP_SIZE | FALLOC_FL_PUNCH_HOLE, from, PIECE_BYTES);
}
