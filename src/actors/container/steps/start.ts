/** A start: who asked for it, and how it ended. */
import type { EngineError } from '../../../errors/engine-error.js';
import type { RequestId } from '../../kit/commands.js';
import type { ContainerContext } from '../container.context.js';
import { NEVER, withState, type ContainerRecord } from '../container.record.js';
import { withStartingHealth } from '../life/health.js';
import { NOTHING_TOLD } from '../life/told.js';
import { emit, publish, reject, saveLater, settle, type Step } from './step.js';
import { AT_THE_END, wake } from './waits.js';

export function noteStarter({ starters }: ContainerContext, req: RequestId): Step {
  return { change: { starters: [...starters, req] } };
}

/** Prepares a start. One that a client asked for forgets how often the policy has restarted the container. */
export function prepareStart({ record, starters, restarters, delayMs }: ContainerContext): Step {
  const isAsked = starters.length + restarters.length > 0;
  return {
    change: {
      record: { ...record, manuallyStopped: false, restartCount: isAsked ? 0 : record.restartCount },
      delayMs: isAsked ? 0 : delayMs,
      exit: undefined,
      told: NOTHING_TOLD,
    },
  };
}

export function announceStart({ starters, restarters }: ContainerContext, started: ContainerRecord): Step {
  const record = withStartingHealth(started);
  return {
    change: { record, starters: [], restarters: [] },
    acts: [
      publish(record),
      emit('start', record),
      ...(restarters.length > 0 ? [emit('restart', record)] : []),
      ...settle([...starters, ...restarters]),
    ],
  };
}

export function startFailed(context: ContainerContext, error: EngineError): Step {
  const { starters, restarters } = context;
  const exitCode = typeof error.details['exitCode'] === 'number' ? error.details['exitCode'] : 128;
  const status = context.record.state.startedAt === NEVER ? 'created' : 'exited';
  const record = withState(context.record, { status, pid: 0, exitCode, error: error.message });
  // The error is told to those who start. `docker run` would print that of a wait as well, as one of its own.
  const woken = wake(context.waiters, AT_THE_END, withState(record, { error: '' }));
  return {
    change: { record, starters: [], restarters: [], waiters: woken.waiters },
    acts: [...reject([...starters, ...restarters], error), publish(record), saveLater(record), ...woken.acts],
  };
}
