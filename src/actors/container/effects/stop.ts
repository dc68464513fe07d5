/** Stops a container: the stop signal, the grace period, SIGKILL, and at last the question whether it is gone. */
import { setTimeout as sleep } from 'node:timers/promises';
import { internal, isEngineError } from '../../../errors/engine-error.js';
import type { ExitStatus, TaskService } from '../../../ports/supervisor.js';
import { SIGKILL } from '../../../text/signals.js';
import type { Pace } from '../../kit/pace.js';
import type { StopInput } from '../container.effects.types.js';
import type { ContainerRecord } from '../container.record.js';
import { thaw } from '../life/ended-task.js';
import { UNSEEN_EXIT_CODE } from '../life/unseen-exit.js';

/**
 * How long an exit may take after SIGKILL before the stop is reported as failed. An exit that the shim does not tell is
 * found out before, also on a busy machine.
 */
const KILL_LIMIT_MS = 25_000;
/** A shim that has not passed the stop signal on for so long hangs. SIGKILL does without it. */
const SIGNAL_LIMIT_MS = 10_000;
const MAX_TIMER_MS = 2 ** 31 - 1;

export interface StopTools {
  readonly tasks: TaskService;
  readonly emitKill: (record: ContainerRecord, signal: number) => void;
}

/** Ends the task; resolves only when its exit was never reported, for the exit event ends this effect before. */
export async function stopContainer(
  tools: StopTools,
  { record, signal, killAtMs }: StopInput,
  aborted: AbortSignal,
  pace: Pace,
): Promise<ExitStatus> {
  if (!(await deliverInTime(tools, record, signal))) return untoldExit(tools, record, aborted);
  if (record.state.status === 'paused') await thaw(tools.tasks, record.id);
  if (signal !== SIGKILL) {
    // Clients may ask for a longer time than one timer can hold.
    for (let leftMs = killAtMs - performance.now(); leftMs > 0; leftMs = killAtMs - performance.now()) {
      await pace.unlimited(sleep(Math.min(leftMs, MAX_TIMER_MS), undefined, { signal: aborted, ref: false }));
    }
    await deliver(tools, record, SIGKILL);
  }
  return untoldExit(tools, record, aborted);
}

/** Waits for the exit event, which ends this effect. If it does not come, the supervisor is asked. */
async function untoldExit({ tasks }: StopTools, { id }: ContainerRecord, aborted: AbortSignal): Promise<ExitStatus> {
  await sleep(KILL_LIMIT_MS, undefined, { signal: aborted, ref: false });
  const task = await tasks.get(id);
  if (!task || task.status === 'stopped') return task?.exit ?? { exitCode: UNSEEN_EXIT_CODE, exitedAt: new Date() };
  throw internal(`cannot stop container: ${id}: tried to kill container, but did not receive an exit event`);
}

/** Sends the first signal. It is not waited for as long as the shim may hang. */
async function deliverInTime(tools: StopTools, record: ContainerRecord, signal: number): Promise<boolean> {
  const delivering = deliver(tools, record, signal);
  if (signal === SIGKILL) return delivering;
  const over = new AbortController();
  const late = sleep(SIGNAL_LIMIT_MS, true, { signal: over.signal, ref: false }).catch(() => true);
  return Promise.race([delivering, late]).finally(() => over.abort());
}

/** Sends a signal. Returns false when there was no process left: the exit is on its way. */
async function deliver({ tasks, emitKill }: StopTools, record: ContainerRecord, signal: number): Promise<boolean> {
  emitKill(record, signal);
  try {
    await tasks.kill(record.id, signal);
    return true;
  } catch (error) {
    if (isEngineError(error, 'not-found')) return false;
    throw error;
  }
}
