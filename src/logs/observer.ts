/** Observes events of a container's log that its readers do not see, for metrics and the daemon's own log. */
export interface LogObserver {
  written(bytes: number): void;
  /** Lines lost for good: no room in non-blocking mode, or the disk refused them. Told about once a second. */
  dropped(lines: number): void;
  /** Bytes that were left out of what a reader got, because they are no records or were deleted before it read them. */
  damaged(bytes: number): void;
  /** The part of the log that a reader asked for could not be read to its end. */
  readFailed(error: unknown): void;
  /** A disk that refuses every write is told of once. */
  failed(error: unknown, what: string): void;
}
