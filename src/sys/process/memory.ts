/** Giving memory back to the host once a busy time is over: V8 and the C library both keep what they once had. */
import { getHeapStatistics } from 'node:v8';
import { libc } from '../ffi/libc.js';
import { collector } from './collector.js';
import { releaseProgramPages } from './program-pages.js';
import { residentBytes } from './resident-bytes.js';

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

/** Hands back what is free in the heaps of the C library; holds those who allocate for up to a millisecond. */
export function trimHeaps(): void {
  mallocTrim(0);
}

/** Whether the daemon rests is looked at so often. After a start, the second look is the first that can find it so. */
const LOOK_MS = 2500;
/** It rests when it used less processor time than that between two looks: what little a few requests take. */
const REST_MS = 50;
/** The time from one release to the next, and for how long one waits for a rest. */
const INTERVAL_MS = 10_000;
const LONGEST_WAIT_MS = 60_000;
/** So much must have been added for a release to be worth its while. */
const WORTHWHILE_BYTES = 8 << 20;
/**
 * The same for objects of this thread. Each transfer leaves some that two collections of the young generation found in
 * use, half a megabyte for a pull of ten layers. V8 itself looks when they fill the heap that it began with.
 */
const WORTHWHILE_OBJECT_BYTES = 2 << 20;

/**
 * Releases memory after busy times: whenever the daemon rests and has grown since the last release. One that never
 * rests does so after a minute: a release collects the whole heap, and what is still needed has to be mapped again.
 * @param mayRelease is told whether the daemon rests. As long as it returns false, it is asked again at each look.
 * Returns what ends this.
 */
export function releaseWhenIdle(mayRelease: (rests: boolean) => boolean): () => void {
  const kept = { own: 0, mapped: 0, objects: 0 };
  // The start itself is the first busy time. Clients often come at once, and a daemon that soon ends needs no release.
  let [usedMs, waitedMs] = [0, INTERVAL_MS];
  const check = async (): Promise<void> => {
    const now = await residentBytes();
    // Less than before means that threads have ended, whose memory lay between what is free now.
    const objects = getHeapStatistics().used_heap_size;
    if (Math.abs(now.own - kept.own) > WORTHWHILE_BYTES || objects > kept.objects + WORTHWHILE_OBJECT_BYTES) {
      releaseMemory();
      kept.objects = getHeapStatistics().used_heap_size;
      kept.own = (await residentBytes()).own;
    }
    if (now.mapped > kept.mapped + WORTHWHILE_BYTES) {
      await releaseProgramPages();
      kept.mapped = (await residentBytes()).mapped;
    }
  };
  const look = (): void => {
    const { user, system } = process.cpuUsage();
    const rests = (user + system) / 1000 < usedMs + REST_MS;
    usedMs = (user + system) / 1000;
    waitedMs += LOOK_MS;
    if (waitedMs < (rests ? INTERVAL_MS : LONGEST_WAIT_MS) || !mayRelease(rests)) return;
    waitedMs = 0;
    void check().catch(ignore);
  };
  const timer = setInterval(look, LOOK_MS).unref();
  return () => clearInterval(timer);
}

/** Without free descriptors nothing can be read. Nothing is lost: the next look comes soon. */
function ignore(): void {}

/** Collects garbage and hands free pages back; blocks for some milliseconds, so only when nobody waits for anything. */
export function releaseMemory(): void {
  collector()?.();
  trimHeaps();
}
