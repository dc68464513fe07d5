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
  /** Frame output with the 8-byte stdcopy header (containers without a terminal). */
  readonly multiplexed: boolean;
}

/** The log of one container, open while it runs. */
export interface ContainerLog {
  /** Path for inspect, '' when the driver has none. */
  readonly path: string;
  /** Lines that were not logged since it was opened: no room in non-blocking mode, or the disk refused them. */
  readonly droppedLines: number;
  /**
   * Takes raw output, in any pieces. Returns false when the writer is behind: stop reading the FIFO until `drain`.
   * Partial lines are joined up to 16 KiB.
   */
  write(stream: StreamName, chunk: Buffer): boolean;
  /** Calls back once when `write` may be called again. */
  onceDrained(callback: () => void): void;
  /**
   * Resolves when all lines until now are where they outlive this process, or were refused there. Undefined when they
   * are, and in non-blocking mode, which waits for nothing.
   */
  written(): Promise<void> | undefined;
  /** Writes a pending partial line and waits until everything is on its way to the disk. Followers end. */
  close(): Promise<void>;
  /**
   * Output ready for the wire, in large pieces. Ends at the end of the log, or with `follow` when the log is closed.
   * `return()` frees everything at once. Throws not-implemented `configured logging driver does not support reading`.
   */
  read(options: LogReadOptions): AsyncIterableIterator<Buffer>;
}

export interface LogDriver {
  /** Opens (creating) the log of a container for writing and reading. invalid for unknown drivers and options. */
  open(container: {
    readonly id: string;
    readonly dir: string;
    readonly driver: string;
    readonly options: Readonly<Record<string, string>>;
    readonly labels: Readonly<Record<string, string>>;
    readonly env: readonly string[];
    readonly name: string;
    readonly imageName: string;
    /** For what drivers add to records and for the tag option. */
    readonly imageId?: string;
    readonly command?: readonly string[];
    /** RFC 3339. */
    readonly created?: string;
    /**
     * It runs already, as the daemon comes back: a server that cannot be reached is waited for, and no reason to fail.
     */
    readonly isRunning?: boolean;
  }): Promise<ContainerLog>;
  /** Reads the log of a container that is not running; nothing there reads as empty. */
  read(
    container: {
      readonly id: string;
      readonly dir: string;
      readonly driver: string;
      readonly options: Readonly<Record<string, string>>;
    },
    options: LogReadOptions,
  ): AsyncIterableIterator<Buffer>;
  /** Checks driver and options at create time: invalid with the Engine API's text. */
  validate(driver: string, options: Readonly<Record<string, string>>): void;
}
