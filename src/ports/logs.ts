/** Contract of a container's log. */

export type StreamName = 'stdout' | 'stderr';

export interface LogReadOptions {
  readonly stdout: boolean;
  readonly stderr: boolean;
  readonly follow: boolean;
  readonly timestamps: boolean;
  readonly details: boolean;
  /** Nanoseconds since the epoch; undefined: no limit. */
  readonly sinceNs: bigint | undefined;
  readonly untilNs: bigint | undefined;
  /** Last N lines of both streams together; undefined: all. */
  readonly tail: number | undefined;
  /** If true, output has frames with the 8-byte stdcopy header (containers without a terminal). */
  readonly multiplexed: boolean;
}

/** A place in the files of a log: so many bytes of the file with this inode number. */
export interface LogPlace {
  readonly file: number;
  readonly offset: number;
}

/** How much of what it was given a log has in its files. */
export interface LogProgress {
  /** The records before it are of the bytes that are taken, the records behind it of later ones. */
  readonly place: LogPlace;
  /** So many bytes of each stream since it was opened, up to the end of a line, or of a piece of a long one. */
  readonly taken: Readonly<Record<StreamName, number>>;
  /** When this has changed, the progress counts from a new place: records behind earlier ones cannot be counted. */
  readonly epoch: number;
}

/** Tells somebody who keeps the input of a log when it is in the files. */
export interface LogLedger {
  progress(): LogProgress;
  /** Calls back at each progress, in the same turn, before anything else is written. There is one listener. */
  onProgress(callback: () => void): void;
  /** Returns how many of these bytes the files have, which are the ones that follow a noted place. */
  loggedSince(
    place: LogPlace,
    bytes: Readonly<Record<StreamName, Buffer>>,
  ): Promise<Readonly<Record<StreamName, number>>>;
  /** Closes the log as `ContainerLog.close` does, but does not write the beginning of a line: its end is to come. */
  leave(): Promise<void>;
}

/** The log of one container, open while it runs. */
export interface ContainerLog {
  /** Path for inspect, '' when the driver has none. */
  readonly path: string;
  /**
   * Number of lines that were lost since it was opened: there was no room in non-blocking mode, or the disk refused
   * them.
   */
  readonly droppedLines: number;
  /** Undefined when lines may be lost on purpose, or go elsewhere than into files. */
  readonly ledger?: LogLedger | undefined;
  /**
   * Takes raw output, in any pieces. Returns false when the writer is behind: stop reading the FIFO until `drain`.
   * Partial lines are joined up to 16 KiB.
   */
  write(stream: StreamName, chunk: Buffer): boolean;
  /** Calls back once when `write` may be called again. */
  onceDrained(callback: () => void): void;
  /**
   * Resolves when all lines until now are where they outlive this process, or were refused there. Returns undefined
   * when they are there already, and in non-blocking mode, which waits for nothing.
   */
  written(): Promise<void> | undefined;
  /** Writes a pending partial line and waits until everything is on its way to the disk. Followers end. */
  close(): Promise<void>;
  /**
   * Returns output ready for the wire, in large pieces. It ends at the end of the log, or with `follow` when the log is
   * closed. `return()` frees everything at once. Throws not-implemented `configured logging driver does not support
   * reading`.
   */
  read(options: LogReadOptions): AsyncIterableIterator<Buffer>;
}

/** A container as log drivers know it. */
export interface LoggedContainer {
  readonly id: string;
  /** Directory of the container's own files. */
  readonly dir: string;
  readonly driver: string;
  readonly options: Readonly<Record<string, string>>;
  readonly labels: Readonly<Record<string, string>>;
  readonly env: readonly string[];
  readonly name: string;
  readonly imageName: string;
  /** Drivers add this to records; the tag option uses it, too. */
  readonly imageId?: string;
  readonly command?: readonly string[];
  /** RFC 3339. */
  readonly created?: string;
  /**
   * True if the container runs already when the daemon comes back. A server that cannot be reached is then no failure;
   * the log waits for it.
   */
  readonly isRunning?: boolean;
}

export interface LogDriver {
  /**
   * Opens (creating) the log of a container for writing and reading. Throws invalid for unknown drivers and options.
   */
  open(container: LoggedContainer): Promise<ContainerLog>;
  /** Reads the log of a container that does not run; a log without files reads as empty. */
  read(container: LoggedContainer, options: LogReadOptions): AsyncIterableIterator<Buffer>;
  /** Checks driver and options at create time. Throws invalid with the Engine API's text. */
  validate(driver: string, options: Readonly<Record<string, string>>): void;
  /** Checks at create time what valid options name on this host. Throws as `validate`. */
  checkPlaces(driver: string, options: Readonly<Record<string, string>>): Promise<void>;
}
