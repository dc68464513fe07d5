/**
 * Keeps the process small while its worker threads are busy: threads, tasks and collections touch parts of the program
 * that nothing needs for the rest of a transfer.
 */
import { trimHeaps } from './memory.js';
import { releaseProgramPages } from './program-pages.js';
import { type ResidentBytes, residentBytes } from './resident-bytes.js';

const LOOK_MS = 50;
/** So much must have been mapped, or added to the process's own memory, since the last release of it. */
const WORTHWHILE_BYTES = 4 << 20;
const WORTHWHILE_OWN_BYTES = 6 << 20;
/** Pages that are mapped again soon after a release, but for so many bytes, are needed: no other is worth it yet. */
const REGAINED_BYTES = 2 << 20;
/**
 * Processor time of the process for which that holds. What mapped them may have been the start of other work, or a
 * compilation, so it is tried again.
 */
const NEEDED_MS = 1000;
/**
 * It does not hold for so much processor time when a thread starts, which maps most of the program, whatever was let go
 * a moment before, and needs half of it.
 */
const START_MS = 300;

/**
 * Processor time of the process between two releases: each costs some milliseconds, since what is still needed is
 * mapped again. A process that gets little of the processors shall not use it for that.
 */
const INTERVAL_MS = 50;

/** The process's memory after the last releases, or less. */
let kept: ResidentBytes = { own: 0, mapped: 0 };
/** Bytes that were mapped before the last release, until it is known what that has brought. */
let releasedFrom = Infinity;
/** So many mapped bytes are needed, until the process has used so much processor time. */
let needed = { mapped: 0, untilMs: 0 };
/** Processor time of the process up to the last release. */
let releasedAtMs = -INTERVAL_MS;
/** Processor time of the process up to the last start of a thread. */
let startedAtMs = -START_MS;
let running = 0;
let isLooking = false;
let timer: NodeJS.Timeout | undefined;

/** Runs `work`. As long as it takes, and any other like it, memory is looked at. */
export async function lookedAfter<T>(work: () => Promise<T>): Promise<T> {
  running += 1;
  if (timer === undefined) {
    timer = setInterval(() => void look(), LOOK_MS).unref();
    // The start of the daemon, or other work, may have mapped much, which says nothing about an earlier release.
    releasedFrom = Infinity;
    void look();
  }
  try {
    return await work();
  } finally {
    running -= 1;
    if (running === 0) {
      clearInterval(timer);
      timer = undefined;
    }
  }
}

/** Is told that a thread starts. */
export function threadStarts(): void {
  startedAtMs = processorMs();
  needed = { mapped: 0, untilMs: 0 };
}

/** Tells whether any such work is under way. */
export function isAtWork(): boolean {
  return running > 0;
}

function processorMs(): number {
  const { user, system } = process.cpuUsage();
  return (user + system) / 1000;
}

async function look(): Promise<void> {
  if (isLooking) return;
  isLooking = true;
  try {
    await releaseIfMuch();
  } catch {
    // Without free descriptors nothing can be read. Nothing is lost: the next look comes soon.
  } finally {
    isLooking = false;
  }
}

async function releaseIfMuch(): Promise<void> {
  const usedMs = processorMs();
  if (usedMs - releasedAtMs < INTERVAL_MS) return;
  const now = await residentBytes();
  if (now.mapped > releasedFrom - REGAINED_BYTES && usedMs - startedAtMs >= START_MS)
    needed = { mapped: now.mapped, untilMs: usedMs + NEEDED_MS };
  releasedFrom = Infinity;
  kept = { own: Math.min(kept.own, now.own), mapped: Math.min(kept.mapped, now.mapped) };
  const level = usedMs < needed.untilMs ? Math.max(kept.mapped, needed.mapped) : kept.mapped;
  const isTooMuch = now.mapped > level + WORTHWHILE_BYTES;
  const isOwnTooMuch = now.own > kept.own + WORTHWHILE_OWN_BYTES;
  if (!isTooMuch && !isOwnTooMuch) return;
  releasedAtMs = usedMs;
  if (isOwnTooMuch) trimHeaps();
  if (isTooMuch) {
    releasedFrom = now.mapped;
    await releaseProgramPages();
  }
  const { own, mapped } = await residentBytes();
  kept = { own: isOwnTooMuch ? own : kept.own, mapped: isTooMuch ? mapped : kept.mapped };
}
