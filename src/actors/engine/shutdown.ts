/** Graceful end of the daemon: containers are stopped as if asked to, all at once, within the shutdown timeout. */
import type { Logger } from '../../ports/logger.js';
import { isRunning, type ContainerRecord } from '../container/container.record.js';
import type { ContainerCommand } from '../container/container.messages.js';
import type { ContainerDirectory } from '../container/directory.js';

/** A container that names a longer stop timeout gets it, and this much more. */
const EXTRA_SECONDS = 5;
const DEFAULT_STOP_SECONDS = 10;

export async function stopContainers(containers: ContainerDirectory, timeoutSeconds: number, log: Logger): Promise<void> {
  const running = containers.list().filter(isRunning);
  if (running.length > 0) log.info({ containers: running.length }, 'stopping containers');
  const limit = running.reduce((longest, { config }) => Math.max(longest, (config.StopTimeout ?? 0) + EXTRA_SECONDS), timeoutSeconds);
  const timeout = new Promise<void>((resolve) => setTimeout(resolve, (limit + EXTRA_SECONDS) * 1000).unref());
  await Promise.race([timeout, Promise.allSettled(running.map((record) => stop(containers, record, timeoutSeconds)))]);
  // What a container held is given back a moment after its exit: drivers must not close before.
  await Promise.race([timeout, containers.settled()]);
  const left = containers.list().filter(isRunning);
  if (left.length > 0) log.warn({ containers: left.map(({ id }) => id) }, 'containers still run at the end of the shutdown timeout');
}

function stop(containers: ContainerDirectory, { id, config }: ContainerRecord, timeoutSeconds: number): Promise<void> {
  const own = config.StopTimeout;
  const options = { timeoutSeconds: own !== undefined && own >= 0 ? own : Math.min(DEFAULT_STOP_SECONDS, timeoutSeconds) };
  return containers.ask<Extract<ContainerCommand, { type: 'container.shutdown' }>>(id, { type: 'container.shutdown', options });
}
