/** The reply to GET /containers/{id}/changes. */
import type { Change } from '../../ports/storage.js';
import { listPieces } from '../parts-reply.js';

export function* changesJson(changes: Iterable<Change>): Generator<string> {
  let count = 0;
  const pieces = listPieces(changes, ({ path, kind }) => {
    count++;
    return JSON.stringify({ Path: path, Kind: kind });
  });
  for (const piece of pieces) yield count === 0 ? 'null' : piece;
}
