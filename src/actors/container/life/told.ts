/**
 * Events of a container that an earlier daemon told. The log has each event before anybody sees it, so what it does not
 * have was told to nobody.
 */
import type { EventType } from '../../../ports/events.js';

export interface ToldEvent {
  readonly timeMs: number;
  readonly attributes: Readonly<Record<string, string>>;
}

/** The last events of a run by `toldKey`. One that was undone by its opposite is not among them. */
export type ToldEvents = ReadonlyMap<string, ToldEvent>;

export const NOTHING_TOLD: ToldEvents = new Map();

const OPPOSITES = new Map([
  ['start', 'die'],
  ['die', 'start'],
  ['connect', 'disconnect'],
  ['disconnect', 'connect'],
  ['mount', 'unmount'],
  ['unmount', 'mount'],
]);

/** Returns the name of an event of a container, of one of its networks or of one of its volumes. */
export function toldKey(type: EventType, action: string, id: string): string {
  return `${type} ${action} ${id}`;
}

/** Adds an event of a container to the earlier ones. */
export function noteTold(
  told: Map<string, ToldEvent>,
  [type, action, id]: readonly [type: EventType, action: string, id: string],
  event: ToldEvent,
): void {
  const opposite = OPPOSITES.get(action);
  if (opposite !== undefined) told.delete(toldKey(type, opposite, id));
  told.set(toldKey(type, action, id), event);
}

/** Returns those since a time, as records have it. */
export function toldSince(told: ToldEvents, time: string): ToldEvents {
  const sinceMs = Date.parse(time);
  return new Map([...told].filter(([, { timeMs }]) => timeMs >= sinceMs));
}
