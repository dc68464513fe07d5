/** OCI documents as JSON text. */
import { randomUUID } from 'node:crypto';

/** Not in any text that a client could know in advance. */
const MARK = `bigint:${randomUUID()}:`;
const MARKED = new RegExp(`"${MARK}(\\d+)"`, 'g');

/** JSON in which bigints are plain numbers: limits such as 2^64-1 are beyond what a double holds. */
export function encodeOci(document: Readonly<Record<string, unknown>>): Buffer {
  let found = false;
  const text = JSON.stringify(document, (_, value: unknown) => {
    if (typeof value !== 'bigint') return value;
    found = true;
    return `${MARK}${value}`;
  });
  return Buffer.from(found ? text.replace(MARKED, '$1') : text);
}
