/**
 * The daemon's events: they are numbered, kept on disk for a while, and the latest are in memory. A slow subscriber
 * costs nothing. It gets every event that is still kept, and is told how many it missed.
 */
import { invalid } from '../errors/engine-error.js';
import type { EventCursor, EventItem, EventLog, EventSubscription, EventType } from '../ports/events.js';
import { wallClockNs } from '../sys/process/wall-clock.js';
import { numberOf, renderCursor } from './cursor.js';
import { EventFiles } from './event-files.js';
import { makeEvent, renderEvent, type StoredEvent } from './event-json.js';
import { EventSubscriber, type EventSource } from './event-subscriber.js';

/** So many events are in memory, besides those that wait for the disk: subscribers that keep up need no file. */
const RECENT = 1024;
/** So many characters of them are: events have all labels of a container, and an image may have megabytes of these. */
const RECENT_CHARACTERS = 8 << 20;
/** So many are written at once, and then seen: each of many subscribers makes a text of them. */
const WRITTEN_AT_ONCE = 64;
/** When the disk takes no events, those beyond this number are given up. */
const MAX_WAITING = 65_536;
const MAX_WAITING_CHARACTERS = 64 << 20;
/** So many subscribers are woken in one turn, because each costs a write to its socket. */
const WOKEN_PER_TURN = 16;
const FILE_BYTES = 4 << 20;
const TOTAL_BYTES = 64 << 20;

export interface EventLogOptions {
  /** Directory of the log's files. */
  readonly dir: string;
  /** Size at which a new file is begun, 4 MiB by default, and of all files together, 64 MiB by default. */
  readonly fileBytes?: number;
  readonly totalBytes?: number;
  /** Called when the disk does not take an event. */
  readonly onFailure: (error: unknown) => void;
}

/** Opens the log of events; numbers and times go on where the last run of the daemon ended. */
export async function openEventLog(options: EventLogOptions): Promise<EventLog> {
  const files = await EventFiles.open(options.dir, {
    fileBytes: options.fileBytes ?? FILE_BYTES,
    totalBytes: options.totalBytes ?? TOTAL_BYTES,
  });
  return new StoredEventLog(files, options.onFailure);
}

class StoredEventLog implements EventLog, EventSource {
  readonly recent: StoredEvent[] = [];
  /** All of them have so many characters. */
  #characters = 0;
  isClosed = false;
  readonly #subscribers = new Set<EventSubscriber>();
  /** These subscribers still have to be told of the latest events. */
  #round: EventSubscriber[] | undefined;
  /** True when new events have come after the first subscribers of this round were told. */
  #isRoundOutdated = false;
  #next: number;
  #lastNs: bigint;
  /** The number of the first event that subscribers do not see yet, because it is on its way to the disk. */
  #shown: number;
  /** The number of the first event that is not on disk yet. */
  #unwritten: number;
  #writing: Promise<void> | undefined;

  constructor(
    readonly files: EventFiles,
    private readonly onFailure: (error: unknown) => void,
  ) {
    this.#next = (files.last?.sequence ?? 0) + 1;
    this.#lastNs = files.last?.timeNs ?? 0n;
    this.#unwritten = this.#next;
    this.#shown = this.#next;
  }

  get next(): number {
    return this.#next;
  }

  get shown(): number {
    return this.#shown;
  }

  get recoveredNs(): bigint | undefined {
    return this.files.last?.timeNs;
  }

  get subscribers(): number {
    return this.#subscribers.size;
  }

  emit(type: EventType, action: string, id: string, attributes: Readonly<Record<string, string>>): void {
    if (this.isClosed) return;
    const event = makeEvent(type, action, id, attributes);
    const now = wallClockNs();
    this.#lastNs = now > this.#lastNs ? now : this.#lastNs + 1n;
    const json = renderEvent(event, this.#lastNs);
    this.recent.push({ sequence: this.#next++, timeNs: this.#lastNs, event, json });
    this.#characters += json.length;
    this.#writing ??= this.#write();
  }

  async written(): Promise<void> {
    await this.#writing;
  }

  subscribe(subscription: EventSubscription): AsyncIterableIterator<readonly EventItem[]> {
    const subscriber: EventSubscriber = new EventSubscriber(this, subscription, () =>
      this.#subscribers.delete(subscriber),
    );
    this.#subscribers.add(subscriber);
    return subscriber;
  }

  async locate(cursor: EventCursor): Promise<number> {
    const sequence = numberOf(cursor, this.#next - 1);
    if (sequence >= 1) {
      if (sequence < (this.files.oldest?.first ?? this.#oldest())) return sequence;
      const event = this.recent[sequence - this.#oldest()] ?? (await this.#readOne(sequence));
      // It may have been removed meanwhile.
      if (event === undefined ? sequence < (this.files.oldest?.first ?? 0) : event.timeNs === cursor.timeNs)
        return sequence;
    }
    throw invalid(`unknown cursor ${renderCursor(cursor.tail, cursor.timeNs)}: no event of this engine has it`, {
      code: 'EVENT_CURSOR',
    });
  }

  async close(): Promise<void> {
    await this.#writing;
    // After a failure the last events are only in memory: one more try.
    await this.#write();
    this.isClosed = true;
    for (const subscriber of this.#subscribers) subscriber.wake();
    await this.files.close();
  }

  /**
   * Tells every subscriber, a few in each turn of the event loop where there are many, so that others are served
   * meanwhile. A subscriber that is told late gets more events at once.
   */
  #wakeAll(): void {
    if (this.#round !== undefined) {
      this.#isRoundOutdated = true;
      return;
    }
    this.#round = [...this.#subscribers];
    this.#wakeSome();
  }

  #wakeSome(): void {
    const round = this.#round ?? [];
    for (const subscriber of round.splice(-WOKEN_PER_TURN)) subscriber.wake();
    if (round.length > 0) return void setImmediate(() => this.#wakeSome());
    this.#round = undefined;
    if (!this.#isRoundOutdated) return;
    this.#isRoundOutdated = false;
    setImmediate(() => this.#wakeAll());
  }

  #show(upTo: number): void {
    this.#shown = Math.max(this.#shown, upTo);
    this.#wakeAll();
  }

  async #write(): Promise<void> {
    // Events that are emitted in the same turn go into the same write.
    await Promise.resolve();
    while (this.#unwritten < this.#next) {
      const first = Math.max(0, this.#unwritten - this.#oldest());
      const waiting = this.recent.slice(first, first + WRITTEN_AT_ONCE);
      try {
        const count = await this.files.append(waiting);
        this.#unwritten = (waiting[count - 1]?.sequence ?? this.#unwritten) + 1;
      } catch (error) {
        this.onFailure(error);
        this.#forget(this.#next, MAX_WAITING, MAX_WAITING_CHARACTERS);
        // The next event starts another attempt.
        this.#show(this.#next);
        break;
      }
      this.#show(this.#unwritten);
      this.#forget(this.#unwritten, RECENT + this.#next - this.#unwritten, RECENT_CHARACTERS);
    }
    this.#writing = undefined;
  }

  /** Lets the oldest events before `end` go until not more than so many, and so many characters, are in memory. */
  #forget(end: number, most: number, mostCharacters: number): void {
    let count = 0;
    for (const { sequence, json } of this.recent) {
      const isRoom = this.recent.length - count <= most && this.#characters <= mostCharacters;
      if (isRoom || sequence >= end) break;
      this.#characters -= json.length;
      count++;
    }
    if (count > 0) this.recent.splice(0, count);
  }

  /** Reads an event from the disk; undefined when it is not there. */
  async #readOne(sequence: number): Promise<StoredEvent | undefined> {
    const reader = this.files.reader(sequence);
    try {
      const [event] = await reader.read();
      return event?.sequence === sequence ? event : undefined;
    } finally {
      await reader.close();
    }
  }

  /** Returns the number of the oldest event in memory. */
  #oldest(): number {
    return this.recent[0]?.sequence ?? this.#next;
  }
}
