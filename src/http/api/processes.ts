/** The reply to GET /containers/{id}/top. */
import type { ProcessList } from '../../actors/container/top.js';
import { listPieces } from '../parts-reply.js';

export function* processesJson({ titles, rows }: ProcessList): Generator<string> {
  yield `{"Titles":${JSON.stringify(titles)},"Processes":`;
  yield* listPieces(rows, (row) => JSON.stringify(row));
  yield '}';
}
