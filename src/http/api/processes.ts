/** The reply to GET /containers/{id}/top. */
import type { ProcessList } from '../../actors/container/top.js';

export function processesJson({ titles, rows }: ProcessList): unknown {
  return { Titles: titles, Processes: rows };
}
