/** Networks and volumes that an earlier daemon made just before it was killed, so that nobody was told of them. */
import type { EventLog } from '../../ports/events.js';
import { earlierEvents, lastToldSinceMs } from './told-events.js';

/** Something that is there, with the event that tells of its creation. */
export interface Making {
  readonly type: 'network' | 'volume';
  readonly id: string;
  /** As in its record. */
  readonly created: string;
  readonly attributes: Readonly<Record<string, string>>;
}

/** Returns those whose creation was not told. The log is not read when nothing was made lately. */
export async function untoldMakings(events: EventLog, made: readonly Making[]): Promise<readonly Making[]> {
  const sinceMs = lastToldSinceMs(events);
  const keyOf = (type: string, id: string): string => `${type} ${id}`;
  const untold = new Map(
    made
      .filter(({ created }) => Date.parse(created) >= sinceMs)
      .map((making) => [keyOf(making.type, making.id), making] as const),
  );
  if (untold.size === 0) return [];
  const told = new Set<string>();
  for await (const items of earlierEvents(events, sinceMs, ({ Type, Actor }) => untold.has(keyOf(Type, Actor.ID))))
    for (const { event } of items) {
      const key = keyOf(event.Type, event.Actor.ID);
      if (event.Action === 'create') told.add(key);
      // A name may come again.
      if (event.Action === 'destroy') told.delete(key);
    }
  return [...untold].flatMap(([key, making]) => (told.has(key) ? [] : [making]));
}
