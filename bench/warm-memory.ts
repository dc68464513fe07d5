/**
 * Fills memory that is free just before something is measured. A virtual machine may tell its host what has been free
 * for two seconds, and the host takes it away (VIRTIO_BALLOON_F_REPORTING). Whoever uses it next waits for the host,
 * some 1.7 s for 1 GB, ten times as long as it takes to write so much. Which engine that is would be chance. So all of
 * it goes to the page cache of a file that is one hole, and what a sample may want is freed just before it begins.
 */
import { ftruncateSync, openSync, readFileSync, readSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';

/** Most of this is what the kernel wants to have at hand. */
const LEFT_FREE_BYTES = 400 * 2 ** 20;
/** The largest sample writes 1 GB, of which there may be two copies. */
const FREED_BYTES = 2 ** 31;
/** Nobody gets to its end: it is read on, once. */
const HOLE_BYTES = 2 ** 43;
const ROOM = Buffer.alloc(2 ** 20);

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
  for (let left = freeBytes() - LEFT_FREE_BYTES; left > 0; left -= ROOM.length)
    hole.at += readSync(hole.fd, ROOM, 0, ROOM.length, hole.at);
  // To cut a file frees the memory of what is cut off.
  hole.at = Math.max(0, hole.at - FREED_BYTES);
  ftruncateSync(hole.fd, hole.at);
  ftruncateSync(hole.fd, HOLE_BYTES);
}
