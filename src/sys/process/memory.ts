/** Giving memory back to the host once a busy time is over: V8 and the C library both keep what they once had. */
import { setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';
import { libc } from '../ffi/libc.js';

// malloc.h
const M_MMAP_THRESHOLD = -3;
const M_ARENA_MAX = -8;

/** The C library begins with this. */
const MAPPED_BYTES = 128 << 10;

const mallopt = libc.func<[parameter: number, value: number]>('int mallopt(int parameter, int value)');
const mallocTrim = libc.func<[pad: number]>('int malloc_trim(size_t pad)');

/**
 * Keeps the heaps of the C library small. All threads share two of them instead of two for each core: threads here
 * allocate little, and each further heap keeps what it once had. Large buffers go back to the host as soon as they are
 * free: the library would take them from its heaps, too, once it has freed one of them. Call it before threads are
 * started.
 */
export function limitHeaps(): void {
  mallopt(M_ARENA_MAX, 2);
  mallopt(M_MMAP_THRESHOLD, MAPPED_BYTES);
}

let collect: (() => void) | undefined;

/** How often it is looked at, and how much memory must have been added for a release to be worth its while. */
const CHECK_MS = 10_000;
const AFTER_START_MS = 5000;
const WORTHWHILE = 1.1;

/**
 * Releases memory after busy times: whenever the daemon is idle and has grown since the last release. Returns what
 * ends this.
 */
export function releaseWhenIdle(isIdle: () => boolean): () => void {
  let smallest = 0;
  const check = (): void => {
    if (process.memoryUsage.rss() <= smallest * WORTHWHILE || !isIdle()) return;
    releaseMemory();
    smallest = process.memoryUsage.rss();
  };
  // The start itself is the first busy time. Clients often come at once, and a daemon that soon ends needs no release.
  const first = setTimeout(check, AFTER_START_MS).unref();
  const timer = setInterval(check, CHECK_MS).unref();
  return () => {
    clearTimeout(first);
    clearInterval(timer);
  };
}

/** Collects garbage and hands free pages back; blocks for some milliseconds, so only when nobody waits for anything. */
function releaseMemory(): void {
  if (!collect) {
    setFlagsFromString('--expose-gc');
    collect = runInNewContext('gc') as () => void;
    // V8 refuses the kept code of Node's modules as long as the flag is set.
    setFlagsFromString('--no-expose-gc');
  }
  collect();
  mallocTrim(0);
}
