/** Reads in the log of events what the last daemon told of containers before it was gone. */
import type { EngineEvent, EventItem, EventLog, EventType } from '../../ports/events.js';
import type { Attempt } from '../../ports/kept-replies.js';
import type { TaskInfo } from '../../ports/supervisor.js';
import { ownMember } from '../../text/own-member.js';
import type { ContainerRecord, ContainerStatus } from '../container/container.record.js';
import { hasMovedSince, noteTold, toldKey, type ToldEvent, type ToldEvents } from '../container/life/told.js';

/**
 * A daemon writes down what it has told within moments, so only its last minutes matter. They are counted back from the
 * last event, since it may have been gone for long.
 */
const LAST_MS = 10 * 60_000;
const AT_REST: ReadonlySet<ContainerStatus> = new Set(['created', 'exited', 'dead', 'removing']);
const NS_PER_MS = 1_000_000n;

export interface LastTold {
  readonly byContainer: ReadonlyMap<string, ToldEvents>;
  /** All events since this time are known; Infinity: none are. */
  readonly sinceMs: number;
}

/**
 * Returns what was told of containers. The log is not read when all of them rest or run as they did before.
 * @param retired these are removed, and only their last record is left.
 * @param tasks those that the supervisor has, by container.
 */
export async function readLastTold(
  events: EventLog,
  { found, retired }: { readonly found: readonly ContainerRecord[]; readonly retired: readonly ContainerRecord[] },
  tasks: ReadonlyMap<string, TaskInfo>,
): Promise<LastTold> {
  const byContainer = new Map<string, Map<string, ToldEvent>>();
  const sinceMs = lastToldSinceMs(events);
  if (sinceMs === Infinity) return { byContainer, sinceMs };
  const isRecent = (time: string): boolean => Date.parse(time) >= sinceMs;
  for (const { id } of retired) byContainer.set(id, new Map());
  for (const record of found) {
    const { id, created, state } = record;
    const task = tasks.get(id);
    const isAlive = task?.status === 'running' || task?.status === 'paused';
    const mayHaveEnded = !isAlive && (task !== undefined || !AT_REST.has(state.status));
    const isNew = isRecent(created) || isRecent(state.startedAt) || hasMovedSince(record, sinceMs);
    if (mayHaveEnded || isNew) byContainer.set(id, new Map());
  }
  if (byContainer.size === 0) return { byContainer, sinceMs };
  for await (const items of earlierEvents(events, sinceMs, (event) => byContainer.has(containerOf(event)))) {
    for (const { event, timeNs } of items) {
      const { Type, Action, Actor } = event;
      const told = byContainer.get(containerOf(event));
      const timeMs = Number(timeNs / NS_PER_MS);
      if (told) noteTold(told, [Type, Action, Actor.ID], { timeMs, attributes: Actor.Attributes });
    }
  }
  return { byContainer, sinceMs };
}

/** All events of the last daemon since this time matter; Infinity: there was none. */
export function lastToldSinceMs({ recoveredNs }: EventLog): number {
  return recoveredNs === undefined ? Infinity : Number(recoveredNs / NS_PER_MS) - LAST_MS;
}

/** Returns whether the removal of a container was told; true when nobody knows. */
export function isRemovalTold({ id }: ContainerRecord, { byContainer }: LastTold): boolean {
  return byContainer.get(id)?.has(toldKey('container', 'destroy', id)) ?? true;
}

/** Finds what an earlier daemon told of requests that it had begun and this one does again. */
export class EarlierTold {
  /** The numbers of events that belong to requests which were done again. */
  readonly #taken = new Set<number>();

  constructor(private readonly events: EventLog) {}

  /**
   * Returns whether such an event was told since the attempt was begun. Each event belongs to one request, so it is
   * found once.
   * @param attempt undefined for a request without a key: nobody knows of an earlier one.
   * @param attributes the event has these, and maybe others.
   */
  async has(
    attempt: Attempt | undefined,
    [type, action, id]: readonly [type: EventType, action: string, id: string],
    attributes: Readonly<Record<string, string>>,
  ): Promise<boolean> {
    if (attempt?.isInterrupted !== true) return false;
    const isMeant = ({ Type, Action, Actor }: EngineEvent): boolean =>
      Type === type &&
      Action === action &&
      Actor.ID === id &&
      Object.entries(attributes).every(([name, value]) => ownMember(Actor.Attributes, name) === value);
    for await (const items of earlierEvents(this.events, attempt.begunMs, isMeant)) {
      const found = items.find(({ sequence }) => !this.#taken.has(sequence));
      if (found === undefined) continue;
      this.#taken.add(found.sequence);
      return true;
    }
    return false;
  }
}

type Earlier = Extract<EventItem, { kind: 'event' }>;

/** Returns events since a time that an earlier daemon recorded. */
export async function* earlierEvents(
  events: EventLog,
  sinceMs: number,
  filter: (event: EngineEvent) => boolean,
): AsyncGenerator<readonly Earlier[]> {
  const { recoveredNs } = events;
  if (recoveredNs === undefined) return;
  const sinceNs = BigInt(Math.max(0, sinceMs)) * NS_PER_MS;
  for await (const items of events.subscribe({ sinceNs, untilNs: recoveredNs, filter }))
    yield items.filter((item): item is Earlier => item.kind === 'event');
}

/** Returns the container that an event tells of; '' when it tells of none. */
function containerOf({ Type, Actor }: EngineEvent): string {
  return Type === 'container' ? Actor.ID : (Actor.Attributes['container'] ?? '');
}
