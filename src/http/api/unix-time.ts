/** Times in the query of streams: `seconds[.fraction]` since the epoch; clients convert everything else themselves. */
import { invalid } from '../../errors/engine-error.js';

const MAX_SECONDS = 2n ** 63n - 1n;

/**
 * Nanoseconds since the epoch; of a query parameter; undefined for '' and for -1, which the known engine takes for no time.
 * @throws EngineError invalid for anything else.
 */
export function parseUnixTime(name: string, text: string): bigint | undefined {
  if (text === '') return undefined;
  const dot = text.indexOf('.');
  const seconds = integer(name, dot < 0 ? text : text.slice(0, dot));
  if (dot < 0) return seconds === -1n ? undefined : seconds * 1_000_000_000n;
  const fraction = text.slice(dot + 1);
  integer(name, fraction);
  if (seconds === -1n) return undefined;
  return seconds * 1_000_000_000n + BigInt(fraction.slice(0, 9).padEnd(9, '0'));
}

function integer(name: string, text: string): bigint {
  const fault = !/^[+-]?\d+$/.test(text) ? 'invalid syntax' : BigInt(text.replace('+', '')) > MAX_SECONDS ? 'value out of range' : undefined;
  if (fault !== undefined) throw invalid(`invalid ${name}: strconv.ParseInt: parsing ${JSON.stringify(text)}: ${fault}`, { code: 'QUERY_TIME' });
  return BigInt(text.replace('+', ''));
}
