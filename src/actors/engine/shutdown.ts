/** Ends the daemon's containers gracefully: all are stopped at once, as if asked to, within the shutdown timeout. */
import { setTimeout as sleep } from 'node:timers/promises';
import type { Logger } from '../../ports/logger.js';
import { isRunning, type ContainerRecord } from '../container/container.record.js';
import type { ContainerDirectory } from '../container/directory.js';

/** Resources are freed after a SIGKILL, too, and that takes some time. */
const EXTRA_SECONDS = 10;
const MAX_TIMER_MS = 2 ** 31 - 1;

/**
 * @param timeoutSeconds applies to each container that names no time of its own; negative: the daemon waits without a
 * limit.
 */
export async function stopContainers(
  containers: ContainerDirectory,
  timeoutSeconds: number,
  log: Logger,
): Promise<void> {
  // Containers that are just starting are stopped too, because they run in a moment.
  const active = containers.active();
  const running = active.filter(isRunning);
  if (running.length > 0) log.info({ containers: running.length }, 'stopping containers');
  const times = active.map(({ config }) => config.StopTimeout ?? timeoutSeconds);
  const longest = times.some((seconds) => seconds < 0) ? Infinity : Math.max(0, ...times) + EXTRA_SECONDS;
  const over = new AbortController();
  const timeout = sleep(Math.min(longest * 1000, MAX_TIMER_MS), undefined, { signal: over.signal }).catch(
    () => undefined,
  );
  await Promise.race([timeout, Promise.allSettled(active.map((record) => stop(containers, record, timeoutSeconds)))]);
  // The resources of a container are freed a moment after its exit: drivers must not close before.
  await Promise.race([timeout, containers.settled()]);
  over.abort();
  const left = containers.list().filter(isRunning);
  if (left.length > 0)
    log.warn({ containers: left.map(({ id }) => id) }, 'containers still run at the end of the shutdown timeout');
}

function stop(containers: ContainerDirectory, { id, config }: ContainerRecord, timeoutSeconds: number): Promise<void> {
  return containers.shutDown(id, { timeoutSeconds: config.StopTimeout ?? timeoutSeconds });
}
