/** The time of day in nanoseconds, which Node itself tells only in milliseconds. */

/** How far our reading may be from the system's before it is set again: somebody set the clock, or it was slewed. */
const MAX_DRIFT_MS = 2;

let anchorNs = 0n;

/**
 * Nanoseconds since the epoch. It advances with the monotonic clock, so that neighbours differ by what really passed,
 * and follows the system's clock when that is set.
 */
export function wallClockNs(): bigint {
  const monotonicNs = process.hrtime.bigint();
  const nowMs = Date.now();
  const reading = anchorNs + monotonicNs;
  const driftMs = Number(reading / 1_000_000n) - nowMs;
  if (driftMs <= MAX_DRIFT_MS && driftMs >= -MAX_DRIFT_MS) return reading;
  const actual = BigInt(nowMs) * 1_000_000n;
  anchorNs = actual - monotonicNs;
  return actual;
}
