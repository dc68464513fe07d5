/**
 * Decides after a restart of the daemon, from a container's record, the supervisor's task and what was told of it, how
 * the container is. Pure.
 */
import type { ExitStatus, TaskInfo } from '../../../ports/supervisor.js';
import type { ContainerInput } from '../container.context.js';
import { isRunning, withState, type ContainerRecord } from '../container.record.js';
import { withoutPending } from '../network/network-change.js';
import { withEndedHealth } from './health.js';
import { NOTHING_TOLD, toldKey, toldSince, type ToldEvents } from './told.js';
import { UNSEEN_EXIT_CODE } from './unseen-exit.js';

/**
 * Returns how the actor of this container begins. The record wins on identity, the supervisor on what runs.
 * @param events what the last daemon told of the container, as far back as a crash can matter.
 */
export function reconcile(
  found: ContainerRecord,
  task: TaskInfo | undefined,
  now: Date,
  events: ToldEvents = NOTHING_TOLD,
): ContainerInput {
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
  const told = toldSince(events, found.state.startedAt);
  const isSettled = status === 'exited' || status === 'restarting';
  // The end was told, then written down; only what the run held was not given back yet.
  if (isSettled && (task?.status === 'stopped' || task?.status === 'unknown'))
    return { phase: 'ended', record: withState(record, { pid: 0 }), told };
  // A task that was only made may seem to have ended when its creation was broken off.
  const isUnstarted = status === 'starting' && !wasStarted(told, found.id);
  if (task?.status === 'stopped' && !(isUnstarted && task.isUnwitnessed === true))
    return { phase: 'exited', record, exit: task.exit ?? unseenExit(told, found.id, now), told };
  if (task || isUnstarted) return unstarted(record, now, told);
  if (status === 'created' || status === 'exited') return { phase: 'idle', record };
  if (status === 'restarting') return { phase: 'idle', record: withState(record, { status: 'exited' }) };
  return { phase: 'exited', record, exit: unseenExit(told, found.id, now), told };
}

/** Returns whether a container's record says how it is, while nobody knows the state of its task. */
export function isClearWithoutTask(status: ContainerRecord['state']['status']): boolean {
  return status !== 'created' && status !== 'starting';
}

/** Returns whether the log has the start of the run, or its end. */
function wasStarted(told: ToldEvents, id: string): boolean {
  return told.has(toldKey('container', 'start', id)) || told.has(toldKey('container', 'die', id));
}

/** The container was never started: the daemon died in the middle of its start. Nobody is told of an end. */
function unstarted(record: ContainerRecord, now: Date, told: ToldEvents): ContainerInput {
  const ended = withState(withEndedHealth(record), {
    status: 'exited',
    pid: 0,
    exitCode: 128,
    error: 'the daemon stopped while the container was starting',
    finishedAt: now.toISOString(),
  });
  return { phase: 'ended', record: ended, told };
}

/** Returns the exit of which the supervisor knows nothing: what was told of it, if anything was. */
function unseenExit(told: ToldEvents, id: string, now: Date): ExitStatus {
  const die = told.get(toldKey('container', 'die', id));
  if (die === undefined) return { exitCode: UNSEEN_EXIT_CODE, exitedAt: now };
  return { exitCode: Number(die.attributes['exitCode']), exitedAt: new Date(die.timeMs) };
}

/**
 * Returns the events of creation and start that happened without being told, because the daemon died just then.
 * @param events undefined for a container of which nothing has to be known.
 * @param knownSinceMs all events since this time are known; what is older was told.
 */
export function untoldBeginnings(
  { phase, record }: ContainerInput,
  events: ToldEvents | undefined,
  knownSinceMs: number,
): ('create' | 'start')[] {
  const isUntold = (time: string, wasTold: boolean): boolean => Date.parse(time) >= knownSinceMs && !wasTold;
  if (events === undefined) return [];
  const { id, created, state } = record;
  const hasRun = phase === 'running' || phase === 'exited';
  if (hasRun) return isUntold(state.startedAt, wasStarted(toldSince(events, state.startedAt), id)) ? ['start'] : [];
  const isNew = phase === 'idle' && state.status === 'created';
  return isNew && isUntold(created, events.has(toldKey('container', 'create', id))) ? ['create'] : [];
}

/**
 * Returns the restart count. If the container was waiting for a restart, that was counted but not made, so it is taken
 * back: it must not count as one of those that the policy allows.
 */
function restartCount({ state, restartCount }: ContainerRecord, task: TaskInfo | undefined): number {
  const isOwed = state.status === 'restarting' && task === undefined;
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
