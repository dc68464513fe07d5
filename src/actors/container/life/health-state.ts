/** The health of a container as its record has it: status and latest probes. */

export type HealthStatus = 'starting' | 'healthy' | 'unhealthy';

export interface ProbeResult {
  /** RFC 3339 with nanoseconds. */
  readonly start: string;
  readonly end: string;
  /** The exit code; -1: the probe could not be run to its end. */
  readonly exitCode: number;
  readonly output: string;
}

export interface HealthState {
  readonly status: HealthStatus;
  /** Failures in a row. */
  readonly failingStreak: number;
  /** The latest results, oldest first. */
  readonly log: readonly ProbeResult[];
}
