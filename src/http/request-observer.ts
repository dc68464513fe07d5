/**
 * An observer is told of every request, for metrics. Its methods are called on the main thread for each request, so
 * they must cost next to nothing.
 */
export interface RequestObserver {
  /**
   * A reply is complete, or the client has left before it was begun (status 499).
   * @param pattern the route's, never the path, so that the number of different ones is bounded.
   * @param startedMs when the request came, on the clock of `performance.now()`.
   * @param isWhole false when its stream told of a failure, or the client left before the end of it.
   */
  answered(method: string, pattern: string, status: number, startedMs: number, isWhole: boolean): void;
  /** A request got no route: there is none, or its version, its path or the load of the daemon forbade it. */
  refused(status: number): void;
}

/** Status for a client that closed its connection, as nginx and others after it have it. */
export const CLIENT_LEFT = 499;
