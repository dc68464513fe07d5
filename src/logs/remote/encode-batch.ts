/** The bytes of a batch, made in parts, because a batch of long lines is megabytes of JSON. */
import { inTurns, type Parts } from '../../text/turns.js';
import type { RemoteRecord } from './remote-sink.js';

type Encode = (record: RemoteRecord) => string;

/** @param encode returns '' for a record that is left out. @throws when the signal aborts. */
export function encodeBatch(records: readonly RemoteRecord[], encode: Encode, signal: AbortSignal): Promise<Buffer> {
  return inTurns(parts(records, encode), signal);
}

function* parts(records: readonly RemoteRecord[], encode: Encode): Parts<Buffer> {
  const pieces: Buffer[] = [];
  for (const record of records) {
    pieces.push(Buffer.from(encode(record)));
    yield;
  }
  return Buffer.concat(pieces);
}
