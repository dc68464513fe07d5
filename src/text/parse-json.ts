/** Parses the JSON of a request, with the messages that clients of the Engine API know. */
import { invalid, messageOf } from '../errors/engine-error.js';

export interface ScannedJson {
  readonly bytes: Uint8Array<ArrayBuffer>;
  readonly isEmpty: boolean;
  /** The scan has found this. */
  readonly firstEnd: number | undefined;
}

/**
 * Parses the text. @throws EngineError invalid, which says whether the JSON is missing, broken, or followed by
 * something else.
 */
export function parseScannedJson({ bytes, isEmpty, firstEnd }: ScannedJson): unknown {
  if (isEmpty) throw invalid('invalid JSON: got EOF while reading request body', { code: 'BODY_EMPTY' });
  const { buffer, byteOffset, length } = bytes;
  const value = parse(Buffer.from(buffer, byteOffset, firstEnd ?? length).toString('utf8'));
  if (firstEnd !== undefined) throw invalid('unexpected content after JSON', { code: 'BODY_TRAILING' });
  return value;
}

function parse(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch (cause) {
    throw invalid(`invalid JSON: ${messageOf(cause)}`, { code: 'BODY_JSON', cause });
  }
}
