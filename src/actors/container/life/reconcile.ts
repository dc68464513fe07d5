/**
 * Decides after a restart of the daemon, from a container's record and the supervisor's task, how the container is.
 * Pure.
 */
import type { TaskInfo } from '../../../ports/supervisor.js';
import type { ContainerInput } from '../container.context.js';
import { isRunning, withState, type ContainerRecord } from '../container.record.js';
import { withoutPending } from '../network/network-change.js';
import { UNSEEN_EXIT_CODE } from './unseen-exit.js';

/** Returns how the actor of this container begins. The record wins on identity, the supervisor on what runs. */
export function reconcile(found: ContainerRecord, task: TaskInfo | undefined, now: Date): ContainerInput {
  const { status } = found.state;
  if (
    status !== 'removing' &&
    status !== 'dead' &&
    (task?.status === 'running' || task?.status === 'paused' || task?.status === 'pausing')
  ) {
    return {
      phase: 'running',
      record: withState(found, { status: task.status === 'running' ? 'running' : 'paused', pid: task.pid }),
    };
  }
  // The shim does not answer, so nobody knows whether the process has ended: the container counts as it did before.
  const isAlive = status === 'running' || status === 'paused';
  if (isAlive && task?.status === 'unknown') return { phase: 'running', record: found };
  // A change of networks that was under way is gone with the namespace.
  const record = { ...found, networks: withoutPending(found.networks), restartCount: restartCount(found, task) };
  if (status === 'removing' || status === 'dead') return { phase: 'removing', record };
  if (task?.status === 'stopped') {
    return { phase: 'exited', record, exit: task.exit ?? { exitCode: UNSEEN_EXIT_CODE, exitedAt: now } };
  }
  if (task || status === 'starting') {
    // The container was never started: the daemon died in the middle of its start.
    return {
      phase: 'exited',
      record: withState(record, { error: 'the daemon stopped while the container was starting' }),
      exit: { exitCode: 128, exitedAt: now },
    };
  }
  if (status === 'created' || status === 'exited') return { phase: 'idle', record };
  if (status === 'restarting') return { phase: 'idle', record: withState(record, { status: 'exited' }) };
  return { phase: 'exited', record, exit: { exitCode: UNSEEN_EXIT_CODE, exitedAt: now } };
}

/**
 * Returns the restart count. If the container was waiting for a restart, that was counted but not made, so it is taken
 * back: it must not count as one of those that the policy allows.
 */
function restartCount({ state, restartCount }: ContainerRecord, task: TaskInfo | undefined): number {
  const isOwed = state.status === 'restarting' && (task === undefined || task.status === 'stopped');
  return isOwed ? Math.max(0, restartCount - 1) : restartCount;
}

/**
 * Does the same as `reconcile` for a container whose actor has crashed while the daemon goes on. `view` is the record
 * that readers see and `saved` is the one on disk. Mounts and networks that its effects made are in place; the effects
 * may have written more to disk than the actor lived to publish.
 */
export function revived(
  view: ContainerRecord,
  saved: ContainerRecord | undefined,
  task: TaskInfo | undefined,
  now: Date,
): ContainerInput {
  const isLive = task?.status === 'running' || task?.status === 'paused' || task?.status === 'pausing';
  const { state, restartCount } = view;
  const isNewRun =
    task !== undefined && saved !== undefined && isRunning(saved) && saved.state.startedAt !== state.startedAt;
  const record = saved === undefined ? view : { ...saved, restartCount, state: isNewRun ? saved.state : state };
  // The exit was published already, but the release that follows an exit was not finished.
  const isEnded = state.status === 'exited' || state.status === 'restarting';
  // Nobody knows what a start that was given up had made by then.
  const isUnstarted = state.status === 'created' && task === undefined && saved?.state.status === 'starting';
  if (!isLive && !isNewRun && (isEnded || isUnstarted)) {
    return { phase: 'ended', record: withState(record, { pid: 0 }) };
  }
  const input = reconcile(record, task, now);
  return input.phase === 'running' ? { ...input, isInPlace: true } : input;
}
