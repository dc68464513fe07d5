/** `/events` sends past and new events, one JSON object per line, each with the cursor that a reader goes on by. */
import { parseCursor, renderCursor } from '../../events/cursor.js';
import { makeEvent, renderEvent } from '../../events/event-json.js';
import { eventFilter } from '../../events/filters.js';
import { invalid } from '../../errors/engine-error.js';
import type { EngineEvent, EventItem, EventLog } from '../../ports/events.js';
import { wallClockNs } from '../../sys/process/wall-clock.js';
import { parseFilters } from '../api/filters.js';
import { parseUnixTime } from '../api/unix-time.js';
import type { Exchange } from '../exchange.js';
import { pump } from '../response-stream.js';
import { route, type Route } from '../route.js';

/**
 * Only this many bytes are kept for a client that does not read, because there may be many such clients, and they read
 * on from the log.
 */
const UNREAD_BYTES = 4 * 1024;

/** Events as bytes, which all clients that follow them share. */
const rendered = new WeakMap<EngineEvent, Buffer>();

const HEADERS = Object.freeze({ 'Content-Type': 'application/json' });

export function eventRoutes(events: EventLog): Route[] {
  return [route('GET', '/events', (x) => sendEvents(events, x))];
}

async function sendEvents(events: EventLog, x: Exchange): Promise<void> {
  const [since, until] = [x.query.text('since'), x.query.text('until')];
  const [sinceNs, untilNs] = [parseUnixTime('since', since), parseUnixTime('until', until)];
  if (sinceNs !== undefined && untilNs !== undefined && sinceNs > untilNs) {
    throw invalid(`\`since\` time (${since}) cannot be after \`until\` time (${until})`, { code: 'EVENT_TIMES' });
  }
  const matches = eventFilter(parseFilters(x.query.text('filters')));
  const cursor = parseCursor(since);
  // Clients of older versions do not know this event.
  const hidesImageCreate = !x.atLeast(1, 46);
  const subscription = events.subscribe({
    sinceNs: cursor === undefined ? sinceNs : undefined,
    untilNs,
    after: cursor === undefined ? undefined : await events.locate(cursor),
    filter: (event) => matches(event) && !(hidesImageCreate && event.Type === 'image' && event.Action === 'create'),
  });
  const options = { unreadBytes: UNREAD_BYTES, isEndless: untilNs === undefined };
  await pump(new EventLines(subscription), x.stream(200, HEADERS, options));
}

/**
 * Yields batches of events as lines. It is not a generator, because a generator's `return` would wait for the next
 * event.
 */
class EventLines implements AsyncIterableIterator<Uint8Array> {
  constructor(private readonly batches: AsyncIterableIterator<readonly EventItem[]>) {}

  [Symbol.asyncIterator](): this {
    return this;
  }

  async next(): Promise<IteratorResult<Uint8Array, undefined>> {
    const { done, value } = (await this.batches.next()) as IteratorResult<readonly EventItem[], undefined>;
    if (done === true) return { done, value: undefined };
    const lines = value.map(renderItem);
    return { done: false, value: lines.length === 1 && lines[0] !== undefined ? lines[0] : Buffer.concat(lines) };
  }

  async return(): Promise<IteratorResult<Uint8Array, undefined>> {
    await this.batches.return?.();
    return { done: true, value: undefined };
  }
}

function withCursor({ json, sequence, timeNs }: EventItem & { readonly kind: 'event' }): string {
  return `${json.slice(0, -1)},"cursor":"${renderCursor(sequence, timeNs)}"}\n`;
}

/**
 * Renders an item. Missing events are told as an event, too, so that every client can read it; it carries the time of
 * the event that follows.
 */
function renderItem(item: EventItem, index: number, items: readonly EventItem[]): Buffer {
  if (item.kind === 'gap') {
    const next = items[index + 1];
    const timeNs = next?.kind === 'event' ? next.timeNs : wallClockNs();
    return Buffer.from(`${renderEvent(makeEvent('daemon', 'gap', '', { missed: String(item.missed) }), timeNs)}\n`);
  }
  const line = rendered.get(item.event) ?? Buffer.from(withCursor(item));
  rendered.set(item.event, line);
  return line;
}
