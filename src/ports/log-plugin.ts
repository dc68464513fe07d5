/** Contract of log drivers that are plugins: the daemon writes records into a FIFO that the plugin reads. */

/** The container as a log driver hears of it. Members have the names of the plugin protocol. */
export interface LogInfo {
  readonly Config: Readonly<Record<string, string>>;
  readonly ContainerID: string;
  readonly ContainerName: string;
  readonly ContainerEntrypoint: string;
  readonly ContainerArgs: readonly string[];
  readonly ContainerImageID: string;
  readonly ContainerImageName: string;
  readonly ContainerCreated: string;
  readonly ContainerEnv: readonly string[];
  readonly ContainerLabels: Readonly<Record<string, string>>;
  readonly LogPath: string;
  readonly DaemonName: string;
}

/** Which part of a log is wanted. Members have the names of the plugin protocol. */
export interface LogQuery {
  /** RFC 3339; the first day of the year 1 means no limit. */
  readonly Since: string;
  readonly Until: string;
  /** The last N lines; -1: all. */
  readonly Tail: number;
  readonly Follow: boolean;
}

export interface LogPlugin {
  /** Directory of the host in which only the daemon makes FIFOs. */
  readonly directory: string;
  /** @throws EngineError conflict while the plugin is disabled, not-found when it is not installed any more. */
  requireEnabled(): void;
  /** Tells the plugin to read a FIFO, by its name in the directory. @throws EngineError with the plugin's refusal. */
  startLogging(fifo: string, info: LogInfo): Promise<void>;
  stopLogging(fifo: string): Promise<void>;
  /** Tells whether the plugin keeps logs and reads them. One that does not answer does not. */
  canRead(): Promise<boolean>;
  /**
   * Reads a log, in pieces of entries: each is a protobuf message behind its length, of 4 bytes big-endian. Whoever
   * stops taking pieces, or aborts, ends the reading. @throws EngineError with the plugin's refusal.
   */
  readLogs(info: LogInfo, wanted: LogQuery, signal: AbortSignal): Promise<AsyncIterable<Buffer>>;
}

export interface LogPlugins {
  /** Finds a driver; undefined when there is none. @throws EngineError conflict for one that is disabled. */
  find(name: string): LogPlugin | undefined;
  /** Returns the names of all drivers that can be used now. */
  names(): readonly string[];
}
