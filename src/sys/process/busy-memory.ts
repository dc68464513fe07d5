/**
 * Keeps the process small while its worker threads are busy: threads, tasks and collections touch parts of the program
 * that nothing needs for the rest of a transfer.
 */
import { releaseProgramPages } from './program-pages.js';
import { residentBytes } from './resident-bytes.js';

const LOOK_MS = 100;
/** So much must have been mapped since the last release. */
const WORTHWHILE_BYTES = 6 << 20;

/**
 * Processor time of the process between two releases: each costs some milliseconds, since what is still needed is
 * mapped again. A process that gets little of the processors shall not use it for that.
 */
const INTERVAL_MS = 150;

/** Bytes that were mapped after the last release. */
let keptBytes = 0;
/** Processor time of the process up to the last release. */
let releasedAtMs = -INTERVAL_MS;
let running = 0;
let timer: NodeJS.Timeout | undefined;

/** Runs `work`. As long as it takes, and any other like it, memory is looked at. */
export async function lookedAfter<T>(work: () => Promise<T>): Promise<T> {
  running += 1;
  if (timer === undefined) {
    timer = setInterval(() => void look().catch(ignore), LOOK_MS).unref();
    // The start of the daemon, or other work, may have mapped much.
    void look().catch(ignore);
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

async function look(): Promise<void> {
  const { user, system } = process.cpuUsage();
  const usedMs = (user + system) / 1000;
  if (usedMs - releasedAtMs < INTERVAL_MS) return;
  const { mapped } = await residentBytes();
  keptBytes = Math.min(keptBytes, mapped);
  if (mapped < keptBytes + WORTHWHILE_BYTES) return;
  releasedAtMs = usedMs;
  await releaseProgramPages();
  keptBytes = (await residentBytes()).mapped;
}

/** Without free descriptors nothing can be read. Nothing is lost: the next look comes soon. */
function ignore(): void {}
