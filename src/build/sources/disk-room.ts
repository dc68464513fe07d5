/** The room that a source may take on the disk: what servers send has no end that can be relied on. */
import { statfs } from 'node:fs/promises';
import { internal } from '../../errors/engine-error.js';

/** So much stays free: a part of the disk, but not more than a gigabyte. */
const KEPT_PART = 20;
const MAX_KEPT_BYTES = 2 ** 30;
const LOOK_MS = 500;

/** Returns the bytes that may still be written below a directory. */
export async function roomBelow(directory: string): Promise<number> {
  const { bavail, bsize, blocks } = await statfs(directory);
  const kept = Math.min(MAX_KEPT_BYTES, Math.floor((blocks * bsize) / KEPT_PART));
  return Math.max(0, bavail * bsize - kept);
}

/**
 * Runs work that writes below a directory, and aborts it when the room is used up.
 * @throws EngineError that says so; what the work throws.
 */
export async function withinRoom<T>(
  directory: string,
  signal: AbortSignal,
  work: (signal: AbortSignal) => Promise<T>,
): Promise<T> {
  const full = new AbortController();
  const look = async (): Promise<void> => {
    if ((await roomBelow(directory)) === 0) full.abort(internal('no space left on device'));
  };
  await look();
  const timer = setInterval(() => void look().catch(() => undefined), LOOK_MS);
  try {
    return await work(AbortSignal.any([signal, full.signal]));
  } catch (error) {
    // Work that has been aborted does not know why.
    throw full.signal.aborted ? full.signal.reason : error;
  } finally {
    clearInterval(timer);
  }
}
