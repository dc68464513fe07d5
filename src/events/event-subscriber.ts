/**
 * One reader of the daemon's events. It has no queue, only the number up to which it has read: it reads on from memory
 * or, when it fell behind, from the disk.
 */
import type { EventItem, EventSubscription } from '../ports/events.js';
import { wallClockNs } from '../sys/process/wall-clock.js';
import type { EventFileReader, EventFiles } from './event-files.js';
import type { StoredEvent } from './event-json.js';

const BATCH = 256;
/** A batch is one text, so it has only one event beyond this. */
const BATCH_CHARACTERS = 1 << 20;
const MAX_TIMER_MS = 2 ** 31 - 1;

/** A subscriber reads events from this. */
export interface EventSource {
  /** The latest events, in order and without gaps. */
  readonly recent: readonly StoredEvent[];
  readonly files: EventFiles;
  /** The number of the next event. */
  readonly next: number;
  /** Subscribers see the events before this number; those from it on are being written to the disk. */
  readonly shown: number;
  readonly isClosed: boolean;
}

export class EventSubscriber implements AsyncIterableIterator<readonly EventItem[]> {
  readonly #run: AsyncGenerator<readonly EventItem[], undefined>;
  #position: number;
  #isStopped = false;
  #onWake: (() => void) | undefined;
  #reader: EventFileReader | undefined;

  constructor(
    private readonly source: EventSource,
    private readonly subscription: EventSubscription,
    private readonly onEnd: () => void,
  ) {
    this.#position = source.next;
    this.#run = this.#read();
  }

  [Symbol.asyncIterator](): this {
    return this;
  }

  next(): Promise<IteratorResult<readonly EventItem[], undefined>> {
    return this.#run.next();
  }

  async return(): Promise<IteratorResult<readonly EventItem[], undefined>> {
    this.#isStopped = true;
    this.wake();
    this.onEnd();
    return this.#run.return(undefined);
  }

  /** Tells the subscriber that there are new events, or that no more will come. */
  wake(): void {
    const onWake = this.#onWake;
    this.#onWake = undefined;
    onWake?.();
  }

  async *#read(): AsyncGenerator<readonly EventItem[], undefined> {
    const { sinceNs, untilNs, after } = this.subscription;
    try {
      if (after !== undefined) {
        this.#position = after + 1;
      } else if (sinceNs !== undefined || untilNs !== undefined) {
        const missed = this.#seek(sinceNs ?? 0n);
        if (missed > 0) yield [{ kind: 'gap', missed }];
      }
      for (;;) {
        // The clock is read before the events, so that all events up to `untilNs` are known when it has passed. Those
        // that are still being written are waited for.
        const isOver = untilNs !== undefined && wallClockNs() > untilNs;
        const { next } = this.source;
        while (this.#position < this.source.shown && !this.#isStopped) {
          const events = await this.#take();
          const items = this.#select(events);
          if (items.length > 0) yield items;
          const last = events.at(-1);
          if (last && untilNs !== undefined && last.timeNs > untilNs) return;
        }
        if (this.#isStopped || this.source.isClosed || (isOver && this.#position >= next)) return;
        await this.#more(isOver ? undefined : untilNs);
      }
    } finally {
      this.onEnd();
      await this.#reader?.close();
    }
  }

  /**
   * Goes to the first event that may be wanted. Returns how many events that may have been wanted are no longer kept.
   */
  #seek(sinceNs: bigint): number {
    const { files, recent } = this.source;
    const [first] = recent;
    if (first && (first.timeNs <= sinceNs || !files.oldest)) {
      this.#position = recent.find(({ timeNs }) => timeNs >= sinceNs)?.sequence ?? this.source.next;
      return 0;
    }
    this.#position = files.findSince(sinceNs) ?? this.source.next;
    // A client that asks for the beginning of time wants all events that there are, so it misses nothing.
    return files.oldest && sinceNs > 0n && files.oldest.firstNs > sinceNs ? files.oldest.first - 1 : 0;
  }

  /** Returns the next events, from memory or, while the subscriber is behind, from disk. */
  async #take(): Promise<readonly StoredEvent[]> {
    const first = this.source.recent[0]?.sequence ?? this.source.next;
    if (this.#position < first) {
      this.#reader ??= this.source.files.reader(this.#position);
      const events = (await this.#reader.read()).filter(({ sequence }) => sequence >= this.#position);
      if (events.length > 0) return events;
    }
    // Events that are neither on disk nor in memory are lost; the numbers show how many.
    const { recent, next, shown } = this.source;
    const oldest = recent[0]?.sequence ?? next;
    const index = Math.max(0, this.#position - oldest);
    const events = batchOf(recent.slice(index, Math.min(index + BATCH, shown - oldest)));
    // Events in memory are not read from files, which may be removed while the subscriber waits. These here may leave
    // the memory during the close, so they were taken before it.
    await this.#reader?.close();
    this.#reader = undefined;
    return events;
  }

  #select(events: readonly StoredEvent[]): EventItem[] {
    const { sinceNs, untilNs, filter } = this.subscription;
    const items: EventItem[] = [];
    for (const { sequence, event, timeNs, json } of events) {
      if (sequence > this.#position) items.push({ kind: 'gap', missed: sequence - this.#position });
      this.#position = sequence + 1;
      if ((sinceNs !== undefined && timeNs < sinceNs) || (untilNs !== undefined && timeNs > untilNs)) continue;
      if (filter(event)) items.push({ kind: 'event', event, sequence, timeNs, json });
    }
    return items;
  }

  /** Waits for an event, the end of the log, or the time `untilNs`. */
  async #more(untilNs: bigint | undefined): Promise<void> {
    const leftMs = untilNs === undefined ? MAX_TIMER_MS : Number((untilNs - wallClockNs()) / 1_000_000n) + 1;
    const timer = setTimeout(() => this.wake(), Math.min(MAX_TIMER_MS, Math.max(0, leftMs)));
    await new Promise<void>((resolve) => (this.#onWake = resolve));
    clearTimeout(timer);
  }
}

/** Returns the first of the events, until they have many characters. */
function batchOf(events: readonly StoredEvent[]): readonly StoredEvent[] {
  let characters = 0;
  const end = events.findIndex(({ json }) => (characters += json.length) >= BATCH_CHARACTERS);
  return end < 0 ? events : events.slice(0, end + 1);
}
