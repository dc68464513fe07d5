/** A record of the json-file driver that is taken apart by JSON.parse, whatever its shape. */
import type { StreamName } from '../../ports/logs.js';
import { parseTime } from '../record-time.js';

export interface JsonRecord {
  readonly log: string;
  readonly stream: StreamName;
  readonly attrs: Readonly<Record<string, unknown>>;
  readonly timeNs: bigint;
}

/** Returns the record in a line; undefined when the line is none. */
export function parseRecord(line: Buffer): JsonRecord | undefined {
  let value: unknown;
  try {
    value = JSON.parse(line.toString());
  } catch {
    // The caller reports the damage.
    return undefined;
  }
  if (typeof value !== 'object' || value === null) return undefined;
  const { log, stream, attrs, time } = value as Readonly<Record<string, unknown>>;
  if (typeof log !== 'string' || (stream !== 'stdout' && stream !== 'stderr') || typeof time !== 'string')
    return undefined;
  const timeNs = parseTime(time);
  if (timeNs === undefined) return undefined;
  return {
    log,
    stream,
    timeNs,
    attrs: typeof attrs === 'object' && attrs !== null ? (attrs as Readonly<Record<string, unknown>>) : {},
  };
}

/** Returns the details as `key=value,key2=value2`, sorted and escaped as in a query. */
export function renderDetails(attrs: Readonly<Record<string, unknown>>): string {
  const escape = (text: string): string =>
    encodeURIComponent(text.replaceAll(/[\ud800-\udfff]/gu, '\ufffd'))
      .replaceAll(/[!'()*]/g, (character) => `%${character.charCodeAt(0).toString(16).toUpperCase()}`)
      .replaceAll('%20', '+');
  return Object.keys(attrs)
    .sort()
    .map((key) => `${escape(key)}=${escape(String(attrs[key]))}`)
    .join(',');
}
