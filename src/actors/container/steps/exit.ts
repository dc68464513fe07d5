/** A run ends: the exit is noted, settled and told, and the resources are released. */
import type { ExitStatus } from '../../../ports/supervisor.js';
import type { ContainerContext } from '../container.context.js';
import type { ContainerFact } from '../container.messages.js';
import { ranMs, withState, type ContainerRecord } from '../container.record.js';
import { withEndedHealth } from '../life/health.js';
import { notRunning } from '../life/refusals.js';
import { nextDelayMs, wantsRestart } from '../life/restart-policy.js';
import { toldKey } from '../life/told.js';
import { UNSEEN_EXIT_CODE } from '../life/unseen-exit.js';
import { emit, publish, reject, settle, type Step } from './step.js';
import { AT_THE_END, wake } from './waits.js';

export function noteExit(_context: ContainerContext, { exit }: Extract<ContainerFact, { type: 'task.exited' }>): Step {
  return { change: { exit } };
}

/** Notes an exit that was never reported; the supervisor told of it when it was asked. */
export function noteUntoldExit(_context: ContainerContext, exit: ExitStatus): Step {
  return { change: { exit } };
}

/** Notes an exit that happened while no daemon or actor listened, so nothing is known about it. */
export function noteUnseenExit(): Step {
  return { change: { exit: { exitCode: UNSEEN_EXIT_CODE, exitedAt: new Date() } } };
}

/** Tells everybody of the exit; all output has been read by then. */
export function settleExit(context: ContainerContext): Step {
  const { restarters, stoppers, pausers, told } = context;
  const exit = context.exit ?? { exitCode: 137, exitedAt: new Date() };
  const ended = withState(withEndedHealth(context.record), {
    status: 'exited',
    pid: 0,
    exitCode: exit.exitCode,
    finishedAt: exit.exitedAt.toISOString(),
  });
  // A container that is brought back is never seen as exited: a client that looks would think it ended.
  const record = comingBack(context, ended) ?? ended;
  const execDuration = String(Math.floor(ranMs(ended) / 1000));
  const woken = wake(context.waiters, AT_THE_END, record);
  const wasTold = told.has(toldKey('container', 'die', record.id));
  return {
    change: {
      record,
      exit: undefined,
      releases: 0,
      stop: undefined,
      stoppers: [],
      pausers: [],
      waiters: woken.waiters,
    },
    acts: [
      publish(record),
      { type: 'partStreams', params: { id: record.id } },
      // A forced removal stops the container, too, but watchers get no stop event for it. It comes first as in dockerd:
      // whoever waits for the end has seen by then that it was wanted.
      ...(stoppers.length + restarters.length > 0 ? [emit('stop', record)] : []),
      ...(wasTold ? [] : [emit('die', record, { exitCode: String(exit.exitCode), execDuration })]),
      ...settle(stoppers),
      ...reject(pausers, notRunning(record)),
      ...woken.acts,
    ],
  };
}

/**
 * Returns the record of a container that a request or its restart policy brings back after this end; undefined when
 * this end is the last one. A restart that was asked for makes the policy count anew.
 */
function comingBack({ removal, restarters, leaving }: ContainerContext, ended: ContainerRecord) {
  if (removal !== undefined || leaving) return undefined;
  const restarting = withState(ended, { status: 'restarting' });
  if (restarters.length > 0) return { ...restarting, restartCount: 0 };
  const isKept = !ended.hostConfig.AutoRemove && wantsRestart(ended);
  return isKept ? { ...restarting, restartCount: ended.restartCount + 1 } : undefined;
}

/** Notes that the networks and mounts of the run are free. */
export function noteReleased(_context: ContainerContext, record: ContainerRecord): Step {
  return { change: { record }, acts: [publish(record)] };
}

export function noteFailedRelease({ releases }: ContainerContext): Step {
  return { change: { releases: releases + 1 } };
}

export function lengthenDelay(context: ContainerContext): Step {
  const delayMs = nextDelayMs(context.delayMs, ranMs(context.record));
  return { change: { delayMs, restartsAt: Date.now() + delayMs } };
}

/** Returns the rest of the delay before the restart. A clock that is set back does not make it longer. */
export function restartsInMs({ delayMs, restartsAt }: ContainerContext): number {
  return Math.min(delayMs, Math.max(0, restartsAt - Date.now()));
}
