/** Contract of the daemon's events: what happened, for `/events` and for parts of the daemon. */

/** An event as its cursor names it. */
export interface EventCursor {
  readonly timeNs: bigint;
  /** The last nine digits of the event's number. */
  readonly tail: number;
}

export type EventType = 'container' | 'image' | 'network' | 'volume' | 'plugin' | 'daemon' | 'builder';

/** An event as the Engine API shows it, without its time. */
export interface EngineEvent {
  /** Deprecated copies of what is below, for containers and images. */
  readonly status?: string;
  readonly id?: string;
  readonly from?: string;
  readonly Type: EventType;
  readonly Action: string;
  readonly Actor: { readonly ID: string; readonly Attributes: Readonly<Record<string, string>> };
  readonly scope: 'local';
}

export type EventItem =
  /** `json` is the whole event with its time, as it is sent; without a newline. */
  | {
      readonly kind: 'event';
      readonly event: EngineEvent;
      /** The number of the event. */
      readonly sequence: number;
      readonly timeNs: bigint;
      readonly json: string;
    }
  /** So many events are no longer kept: the reader was too slow, or asked for older events than there are. */
  | { readonly kind: 'gap'; readonly missed: number };

export interface EventSubscription {
  /** Nanoseconds since the epoch. With `sinceNs` or `untilNs` past events come first. */
  readonly sinceNs: bigint | undefined;
  /** The events behind the one with this number come first, whatever their time. */
  readonly after?: number | undefined;
  /** Ends the subscription after events of exactly this time. */
  readonly untilNs: bigint | undefined;
  readonly filter: (event: EngineEvent) => boolean;
}

export interface EventLog {
  /**
   * Records that something happened, then tells the subscribers: what they have seen is on disk, so the next daemon
   * knows that it was told. Where the disk takes nothing they are told all the same. Times increase strictly from event
   * to event.
   */
  emit(type: EventType, action: string, id: string, attributes: Readonly<Record<string, string>>): void;
  /**
   * Returns the events in order, in batches, each exactly once, at the reader's speed. `return()` settles a pending
   * `next`.
   */
  subscribe(subscription: EventSubscription): AsyncIterableIterator<readonly EventItem[]>;
  /**
   * Returns the number of the event that a cursor names; the event itself may be one that is no longer kept.
   * @throws EngineError invalid when there never was such an event, or it was lost when the machine crashed.
   */
  locate(cursor: EventCursor): Promise<number>;
  /** Resolves when the events so far are on disk, or the disk has not taken them. */
  written(): Promise<void>;
  /** Time of the last event that an earlier daemon recorded; undefined when there is none. */
  readonly recoveredNs: bigint | undefined;
  /** Number of subscribers at the moment. */
  readonly subscribers: number;
  /** Writes what is left to the disk and ends all subscriptions. */
  close(): Promise<void>;
}
