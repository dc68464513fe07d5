/** Times of log records: RFC 3339 in UTC with nanoseconds. */
import { withoutTrailing } from '../text/trailing.js';

const NS_PER_SECOND = 1_000_000_000n;
const TEXT = /^(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)(?:\.(\d{1,9})\d*)?(Z|[+-]\d\d:\d\d)$/;

/** Formats `2006-01-02T15:04:05.123Z`, without trailing zeros; a whole second has no fraction. */
export function formatTime(ns: bigint): string {
  const [second, fraction] = split(ns);
  if (fraction === 0) return `${secondText(second)}Z`;
  return `${secondText(second)}.${withoutTrailing(String(fraction).padStart(9, '0'), '0')}Z`;
}

/** Formats `2006-01-02T15:04:05.123000000Z`, always with nine digits, for the prefix of lines. */
export function formatTimeFixed(ns: bigint): string {
  const [second, fraction] = split(ns);
  return `${secondText(second)}.${String(fraction).padStart(9, '0')}Z`;
}

/** Returns nanoseconds since the epoch; undefined for a text that is no time. */
export function parseTime(text: string): bigint | undefined {
  const match = TEXT.exec(text);
  if (!match) return undefined;
  const [, second = '', fraction = '', zone = ''] = match;
  const ms = Date.parse(second + zone);
  return Number.isNaN(ms) ? undefined : BigInt(ms) * 1_000_000n + BigInt(fraction.padEnd(9, '0'));
}

let lastSecond = Number.NaN;
let lastText = '';

function secondText(second: number): string {
  if (second !== lastSecond) {
    lastText = new Date(second * 1000).toISOString().slice(0, 19);
    lastSecond = second;
  }
  return lastText;
}

function split(ns: bigint): [second: number, fraction: number] {
  let fraction = ns % NS_PER_SECOND;
  if (fraction < 0n) fraction += NS_PER_SECOND;
  return [Number((ns - fraction) / NS_PER_SECOND), Number(fraction)];
}
