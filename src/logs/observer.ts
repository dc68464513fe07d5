/** Gets the events of a container's log that its readers do not see, for metrics and the daemon's own log. */
export interface LogObserver {
  written(bytes: number): void;
  /**
   * So many lines are lost: there was no room in non-blocking mode, or the disk refused them. Called about once a
   * second.
   */
  dropped(lines: number): void;
  /** So many bytes were left out of what a reader got: they are no records, or were deleted before it read them. */
  damaged(bytes: number): void;
  /** The part of the log that a reader asked for could not be read to its end. */
  readFailed(error: unknown): void;
  /** Something else failed. A disk that refuses every write is reported once. */
  failed(error: unknown, what: string): void;
}
