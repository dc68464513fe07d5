/** The time of day in nanoseconds, which Node itself tells only in milliseconds. */
import { libc } from '../ffi/libc.js';

// linux/time.h
const CLOCK_REALTIME = 0;

const clockGettime = libc.func<[clock: number, time: BigInt64Array]>('int clock_gettime(int clock, _Out_ void *time)');
const time = new BigInt64Array(2);

/** Nanoseconds since the epoch, as every other program on this machine reads them at this moment. */
export function wallClockNs(): bigint {
  clockGettime(CLOCK_REALTIME, time);
  return (time[0] ?? 0n) * 1_000_000_000n + (time[1] ?? 0n);
}
