/** Times in the query of streams: `seconds[.fraction]` since the epoch; clients convert everything else themselves. */
import { invalid } from '../../errors/engine-error.js';

interface Range {
  readonly from: bigint;
  readonly to: bigint;
}

/** From the year 1 to the year 9999: no other time can be written as clients and log files do. */
const SECONDS: Range = { from: -62_135_596_800n, to: 253_402_300_799n };
const FRACTION: Range = { from: -(2n ** 63n), to: 2n ** 63n - 1n };
/** A longer number is refused, even if its first digits are zeros. */
const MAX_DIGITS = 64;

/**
 * Returns nanoseconds since the epoch from a query parameter; undefined for '' and for -1, which the known engine takes
 * for no time.
 * @throws EngineError invalid for anything else.
 */
export function parseUnixTime(name: string, text: string): bigint | undefined {
  if (text === '') return undefined;
  const dot = text.indexOf('.');
  const seconds = integer(name, dot < 0 ? text : text.slice(0, dot), SECONDS);
  if (dot < 0) return seconds === -1n ? undefined : seconds * 1_000_000_000n;
  const fraction = text.slice(dot + 1);
  integer(name, fraction, FRACTION);
  if (seconds === -1n) return undefined;
  return seconds * 1_000_000_000n + BigInt(fraction.slice(0, 9).padEnd(9, '0'));
}

function integer(name: string, text: string, { from, to }: Range): bigint {
  const refuse = (fault: string): never => {
    throw invalid(`invalid ${name}: strconv.ParseInt: parsing ${JSON.stringify(text)}: ${fault}`, {
      code: 'QUERY_TIME',
    });
  };
  if (!/^[+-]?\d+$/.test(text)) return refuse('invalid syntax');
  const value = text.length > MAX_DIGITS ? undefined : BigInt(text.replace('+', ''));
  if (value === undefined || value < from || value > to) return refuse('value out of range');
  return value;
}
