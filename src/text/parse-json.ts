/** Parses the JSON of a request, with the messages that clients of the Engine API know. */
import { invalid, messageOf } from '../errors/engine-error.js';

export interface ScannedJson {
  readonly bytes: Uint8Array<ArrayBuffer>;
  readonly isEmpty: boolean;
  /** The scan has found this. */
  readonly firstEnd: number | undefined;
  /**
   * The scan has counted so many elements and members. When it is set, a text is refused that names a member of an
   * object twice, of which readers take the first, the last, or both.
   */
  readonly values?: number | undefined;
}

/**
 * Parses the text. @throws EngineError invalid, which says whether the JSON is missing, broken, or followed by
 * something else.
 */
export function parseScannedJson({ bytes, isEmpty, firstEnd, values }: ScannedJson): unknown {
  if (isEmpty) throw invalid('invalid JSON: got EOF while reading request body', { code: 'BODY_EMPTY' });
  const { buffer, byteOffset, length } = bytes;
  const value = parse(Buffer.from(buffer, byteOffset, firstEnd ?? length).toString('utf8'));
  if (firstEnd !== undefined) throw invalid('unexpected content after JSON', { code: 'BODY_TRAILING' });
  if (values !== undefined && valuesIn(value) !== values)
    throw invalid('invalid JSON: an object has two members of one name', { code: 'BODY_TWICE' });
  return value;
}

/** Counts as `JsonScan` does. */
function valuesIn(top: unknown): number {
  let count = 0;
  const rest = [top];
  for (let value = rest.pop(); value !== undefined; value = rest.pop()) {
    if (typeof value !== 'object' || value === null) continue;
    const members: unknown[] = Array.isArray(value) ? value : Object.values(value);
    count += Math.max(1, members.length);
    for (const member of members) rest.push(member);
  }
  return count;
}

function parse(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch (cause) {
    throw invalid(`invalid JSON: ${messageOf(cause)}`, { code: 'BODY_JSON', cause });
  }
}
