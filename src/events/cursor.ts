/**
 * Cursors of events. A cursor names one event, and a reader that comes back with it in `since` goes on behind that
 * event. It has the form of a time, `seconds.nanoseconds`, followed by nine more digits of the event's number, so that
 * clients which only know times pass it on unchanged, and an engine without cursors takes it for the event's time.
 */
import type { EventCursor } from '../ports/events.js';

const CURSOR = /^(\d{1,12})\.(\d{9})(\d{9})$/;
const NS_PER_SECOND = 1_000_000_000n;
const TAILS = 1_000_000_000;

const nineDigits = (value: number | bigint): string => String(value).padStart(9, '0');

/** Returns the cursor of the event with this number and time. */
export function renderCursor(sequence: number, timeNs: bigint): string {
  return `${timeNs / NS_PER_SECOND}.${nineDigits(timeNs % NS_PER_SECOND)}${nineDigits(sequence % TAILS)}`;
}

/** Returns what a cursor names; undefined for a text that is no cursor, such as a time. */
export function parseCursor(text: string): EventCursor | undefined {
  const match = CURSOR.exec(text);
  if (!match) return undefined;
  const [, seconds = '', nanoseconds = '', tail = ''] = match;
  return { timeNs: BigInt(seconds) * NS_PER_SECOND + BigInt(nanoseconds), tail: Number(tail) };
}

/** Returns the newest number up to `newest` that ends like the cursor's; below 1 when there is none. */
export function numberOf({ tail }: EventCursor, newest: number): number {
  return newest - ((((newest - tail) % TAILS) + TAILS) % TAILS);
}
