/** RFC 3339 texts with nanoseconds, as records and the Engine API carry them. */
import { performance } from 'node:perf_hooks';
import { withoutTrailing } from '../../../text/trailing.js';

/** Renders a UTC instant as `2026-01-02T03:04:05.123456789Z`, trailing zeros trimmed as Go's RFC3339Nano does. */
export function rfc3339Nano(epochNs: bigint): string {
  // The fraction counts forward for instants before the epoch, too.
  const nanoseconds = ((epochNs % 1_000_000_000n) + 1_000_000_000n) % 1_000_000_000n;
  const seconds = (epochNs - nanoseconds) / 1_000_000_000n;
  const base = new Date(Number(seconds) * 1000).toISOString().slice(0, 19);
  const fraction = withoutTrailing(nanoseconds.toString().padStart(9, '0'), '0');
  return fraction === '' ? `${base}Z` : `${base}.${fraction}Z`;
}

const originNs = BigInt(Math.round(performance.timeOrigin * 1e6));

/** Returns nanoseconds since the epoch, strictly increasing within this process. */
export function nowNs(): bigint {
  const now = originNs + BigInt(Math.round(performance.now() * 1e6));
  last = now > last ? now : last + 1n;
  return last;
}

let last = 0n;

/** Returns the present time as RFC 3339 text with nanoseconds, later than any that was returned before. */
export function now(): string {
  return rfc3339Nano(nowNs());
}
