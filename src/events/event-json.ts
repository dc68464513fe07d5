/** Events as JSON: the text on the wire is the text on disk. */
import type { EngineEvent, EventType } from '../ports/events.js';

/** An event with its number in the log. */
export interface StoredEvent {
  readonly sequence: number;
  readonly timeNs: bigint;
  readonly event: EngineEvent;
  readonly json: string;
}

const NS_PER_SECOND = 1_000_000_000n;
const LINE = /^(\d{1,15}) (\{.*"timeNano":(\d{1,19})\})$/;

/** Makes an event, with the deprecated members that containers and images still have. */
export function makeEvent(
  type: EventType,
  action: string,
  id: string,
  attributes: Readonly<Record<string, string>>,
): EngineEvent {
  const Attributes = Object.fromEntries(Object.entries(attributes).sort(([a], [b]) => (a < b ? -1 : 1)));
  const deprecated =
    type === 'container'
      ? { status: action, id, from: attributes['image'] ?? '' }
      : type === 'image'
        ? { status: action, id }
        : {};
  return { ...withoutEmpty(deprecated), Type: type, Action: action, Actor: { ID: id, Attributes }, scope: 'local' };
}

/** Returns the text of an event. A JavaScript number cannot hold its nanoseconds, so they are put in as text. */
export function renderEvent(event: EngineEvent, timeNs: bigint): string {
  return `${JSON.stringify(event).slice(0, -1)},"time":${timeNs / NS_PER_SECOND},"timeNano":${timeNs}}`;
}

/** Returns a line of the log on disk, without its newline. */
export function renderLine({ sequence, json }: StoredEvent): string {
  return `${sequence} ${json}`;
}

/** Returns the event of a line; undefined for a damaged line. */
export function parseLine(line: string): StoredEvent | undefined {
  const match = LINE.exec(line);
  if (!match) return undefined;
  const [, sequence = '', json = '', timeNano = ''] = match;
  try {
    const {
      time: _time,
      timeNano: _timeNano,
      ...event
    } = JSON.parse(json) as EngineEvent & { time: number; timeNano: number };
    if (
      typeof event.Type !== 'string' ||
      typeof event.Action !== 'string' ||
      typeof event.Actor?.Attributes !== 'object'
    )
      return undefined;
    return { sequence: Number(sequence), timeNs: BigInt(timeNano), event, json };
  } catch {
    // The caller counts it as missed.
    return undefined;
  }
}

function withoutEmpty(members: Readonly<Record<string, string>>): Record<string, string> {
  return Object.fromEntries(Object.entries(members).filter(([, value]) => value !== ''));
}
