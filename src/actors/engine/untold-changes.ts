/** Networks and volumes that an earlier daemon made or removed just before it was killed: nobody was told of it. */
import type { EventLog } from '../../ports/events.js';
import { earlierEvents, lastToldSinceMs } from './told-events.js';

/** A creation or removal, with the event that tells of it. */
export interface Change {
  readonly type: 'network' | 'volume';
  readonly action: 'create' | 'destroy';
  readonly id: string;
  /** It was not told before this time. Creations of volumes have whole seconds. */
  readonly atMs: number;
  readonly attributes: Readonly<Record<string, string>>;
}

/**
 * Returns those that were not told, removals first: a name may have come again since. The log is not read when nothing
 * has changed lately.
 */
export async function untoldChanges(events: EventLog, changes: readonly Change[]): Promise<readonly Change[]> {
  const sinceMs = lastToldSinceMs(events);
  const recent = changes.filter(({ atMs }) => atMs >= sinceMs);
  if (recent.length === 0) return [];
  const keyOf = (type: string, id: string): string => `${type} ${id}`;
  const keys = new Set(recent.map(({ type, id }) => keyOf(type, id)));
  /** By key: the times of what was told last of each. */
  const told = new Map<string, { created?: number; destroyed?: number }>();
  for await (const items of earlierEvents(events, sinceMs, ({ Type, Actor }) => keys.has(keyOf(Type, Actor.ID))))
    for (const { event, timeNs } of items) {
      const key = keyOf(event.Type, event.Actor.ID);
      const timeMs = Number(timeNs / 1_000_000n);
      // A creation after another, or after a removal, is of another volume of the name.
      if (event.Action === 'create') told.set(key, { ...told.get(key), created: timeMs });
      if (event.Action === 'destroy') told.set(key, { destroyed: timeMs });
    }
  const removals = recent.filter(({ type, action, id, atMs }) => {
    const { destroyed = -Infinity, created = -Infinity } = told.get(keyOf(type, id)) ?? {};
    // The name was free when the volume after it was told.
    return action === 'destroy' && Math.max(destroyed, created) < Math.trunc(atMs);
  });
  const again = new Set(removals.map(({ type, id }) => keyOf(type, id)));
  const makings = recent.filter(({ type, action, id }) => {
    const key = keyOf(type, id);
    return action === 'create' && (again.has(key) || told.get(key)?.created === undefined);
  });
  return [...removals, ...makings];
}
