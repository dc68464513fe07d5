/** Progress of bytes that come, as a part of a step. */
import type { BuildObserver, CountBytes } from '../ports/build.js';

/** A message for each piece would cost more than the piece. */
const TELL_MS = 100;

/**
 * Shows a transfer while it lasts. Nothing is shown of one whose bytes nobody counts.
 * @param vertex is the step that it belongs to. @param id such as `transferring context:`.
 */
export async function duringTransfer<T>(
  observer: Pick<BuildObserver, 'status'>,
  vertex: string,
  id: string,
  action: (bytes: CountBytes) => Promise<T>,
): Promise<T> {
  const started = Date.now();
  let current: number | undefined;
  let nextMs = 0;
  const result = await action((total) => {
    current = total;
    const nowMs = performance.now();
    if (nowMs < nextMs) return;
    nextMs = nowMs + TELL_MS;
    observer.status({ id, vertex, name: 'transferring', current, total: 0, started });
  });
  if (current !== undefined)
    observer.status({ id, vertex, name: 'transferring', current, total: 0, started, completed: Date.now() });
  return result;
}
