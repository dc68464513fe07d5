/** Sockets that outlive the process of the daemon, so that the next one goes on with them and no client is refused. */
export interface KeptSockets {
  /**
   * Takes the socket that an earlier process had under this name; undefined when there is none. The descriptor belongs
   * to the caller, and the socket is kept further.
   */
  take(name: string): number | undefined;
  /** Has a socket kept from now on. The descriptor still belongs to the caller. */
  keep(name: string, fd: number): void;
  /** Ends the keeping of a socket that nobody needs any more. */
  drop(name: string): void;
  /**
   * Gives a copy of a socket to the next process alone, which takes it under this name and drops the name. Returns
   * false when there is no next process to count on.
   */
  pass(name: string, fd: number): boolean;
  /** True when the next process gets this socket, so what belongs to it, such as its file, must stay. */
  outlives(name: string): boolean;
}

/** Nobody keeps sockets: they end with the process. */
export const NO_KEPT_SOCKETS: KeptSockets = {
  take: () => undefined,
  keep: () => undefined,
  drop: () => undefined,
  pass: () => false,
  outlives: () => false,
};
