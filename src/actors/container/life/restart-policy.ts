/** Restart policies: when a container that exited comes back, and after how long. */
import type { ContainerRecord } from '../container.record.js';

const FIRST_DELAY_MS = 100;
const MAX_DELAY_MS = 60_000;
/** A run of this length counts as healthy: the next delay starts from the beginning. */
const HEALTHY_RUN_MS = 10_000;

/** Returns whether the policy wants the container up again after this exit. */
export function wantsRestart(record: ContainerRecord): boolean {
  const { Name, MaximumRetryCount } = record.hostConfig.RestartPolicy;
  switch (Name) {
    case 'always':
    case 'unless-stopped':
      return !record.manuallyStopped;
    case 'on-failure':
      return (
        !record.manuallyStopped &&
        record.state.exitCode !== 0 &&
        (MaximumRetryCount === 0 || record.restartCount < MaximumRetryCount)
      );
    default:
      return false;
  }
}

/** Returns whether the container is started when the daemon starts. `always` forgets that a user stopped it. */
export function wantsStartAtBoot(record: ContainerRecord): boolean {
  if (record.state.startedAt.startsWith('0001')) return false;
  return record.hostConfig.RestartPolicy.Name === 'always' || wantsRestart(record);
}

/**
 * Returns the milliseconds before the next restart. They depend on the last delay (0: none yet) and on how long the
 * container ran.
 */
export function nextDelayMs(lastDelayMs: number, ranMs: number): number {
  if (lastDelayMs === 0 || ranMs >= HEALTHY_RUN_MS) return FIRST_DELAY_MS;
  return Math.min(lastDelayMs * 2, MAX_DELAY_MS);
}
