/** Writes OCI documents as JSON text. */
import { randomUUID } from 'node:crypto';

/** No client can know this text in advance. */
const MARK = `bigint:${randomUUID()}:`;
const MARKED = new RegExp(`"${MARK}(\\d+)"`, 'g');

/** Returns JSON in which bigints are plain numbers, because limits such as 2^64-1 do not fit into a double. */
export function encodeOci(document: Readonly<Record<string, unknown>>): Buffer {
  let found = false;
  const text = JSON.stringify(document, (_, value: unknown) => {
    if (typeof value !== 'bigint') return value;
    found = true;
    return `${MARK}${value}`;
  });
  return Buffer.from(found ? text.replace(MARKED, '$1') : text);
}
