/**
 * The health of a container as a pure function of what happened to it: starts, ends, pauses and the results of its
 * probes. It is part of the record, so that it survives the daemon.
 */
import type { ContainerConfig, HealthConfig } from '../../../ports/container.js';
import type { ContainerRecord } from '../container.record.js';
import type { HealthState, ProbeResult } from './health-state.js';

export type { ProbeResult };

/** A health check with its defaults filled in. */
export interface ProbePlan {
  readonly argv: readonly string[];
  readonly intervalMs: number;
  readonly timeoutMs: number;
  readonly startPeriodMs: number;
  readonly startIntervalMs: number;
  readonly retries: number;
}

const NS_PER_MS = 1_000_000;
const DEFAULT_INTERVAL_MS = 30_000;
const DEFAULT_TIMEOUT_MS = 30_000;
const DEFAULT_START_INTERVAL_MS = 5000;
const DEFAULT_RETRIES = 3;
const LOG_ENTRIES = 5;

/** Returns the command of the health check and its times; undefined for a container without one. */
export function probePlan({
  Healthcheck,
  Shell,
}: Pick<ContainerConfig, 'Healthcheck' | 'Shell'>): ProbePlan | undefined {
  const argv = Healthcheck && probeCommand(Healthcheck, Shell);
  if (!argv) return undefined;
  const { Interval = 0, Timeout = 0, StartPeriod = 0, StartInterval = 0, Retries = 0 } = Healthcheck;
  return {
    argv,
    intervalMs: Interval / NS_PER_MS || DEFAULT_INTERVAL_MS,
    timeoutMs: Timeout / NS_PER_MS || DEFAULT_TIMEOUT_MS,
    startPeriodMs: StartPeriod / NS_PER_MS,
    startIntervalMs: StartInterval / NS_PER_MS || DEFAULT_START_INTERVAL_MS,
    retries: Retries > 0 ? Retries : DEFAULT_RETRIES,
  };
}

/** `NONE`, no test and kinds that nobody knows mean no check, as for the known engine. */
function probeCommand(
  { Test = [] }: HealthConfig,
  shell: readonly string[] | undefined,
): readonly string[] | undefined {
  const [kind, ...words] = Test;
  if (kind === 'CMD') return words;
  if (kind === 'CMD-SHELL') return [...(shell?.length ? shell : ['/bin/sh', '-c']), ...words];
  return undefined;
}

/** Returns the record of a container that was just started: its probes begin anew, the log of earlier ones stays. */
export function withStartingHealth(record: ContainerRecord): ContainerRecord {
  if (!probePlan(record.config)) return record;
  return withHealth(record, { status: 'starting', failingStreak: 0, log: record.state.health?.log ?? [] });
}

/** Returns the record of a container that ran on while the daemon was away: its health is what it was. */
export function withKeptHealth(record: ContainerRecord): ContainerRecord {
  return record.state.health ? record : withStartingHealth(record);
}

/** Returns the record of a container that is not probed any more, because it has ended or is paused. */
export function withEndedHealth(record: ContainerRecord): ContainerRecord {
  const { health } = record.state;
  return health ? withHealth(record, { ...health, status: 'unhealthy' }) : record;
}

/** Returns the record after a probe of the running container. */
export function withProbeResult(record: ContainerRecord, result: ProbeResult): ContainerRecord {
  const plan = probePlan(record.config);
  const { health, startedAt } = record.state;
  if (!plan || !health) return record;
  const log = [...health.log, result].slice(-LOG_ENTRIES);
  if (result.exitCode === 0) return withHealth(record, { status: 'healthy', failingStreak: 0, log });
  // A container that was never healthy in this run may fail as long as its start period lasts.
  if (health.status === 'starting' && Date.parse(result.start) - Date.parse(startedAt) < plan.startPeriodMs)
    return withHealth(record, { ...health, log });
  const failingStreak = health.failingStreak + 1;
  return withHealth(record, {
    status: failingStreak >= plan.retries ? 'unhealthy' : health.status,
    failingStreak,
    log,
  });
}

/** Returns the milliseconds from the end of a probe, or from the start of the container, to the next probe. */
export function probeDelayMs(plan: ProbePlan, { health, startedAt }: ContainerRecord['state'], nowMs: number): number {
  const isStarting = health?.status === 'starting' && nowMs - Date.parse(startedAt) < plan.startPeriodMs;
  return isStarting ? plan.startIntervalMs : plan.intervalMs;
}

function withHealth(record: ContainerRecord, health: HealthState): ContainerRecord {
  return { ...record, state: { ...record.state, health } };
}
