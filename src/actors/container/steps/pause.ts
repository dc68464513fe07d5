/** Steps of a container that is frozen and goes on again. */
import type { EngineError } from '../../../errors/engine-error.js';
import type { RequestId } from '../../kit/commands.js';
import type { ContainerContext } from '../container.context.js';
import { withState } from '../container.record.js';
import { withEndedHealth } from '../life/health.js';
import { emit, NOTHING, publish, reject, saveLater, settle, type Step } from './step.js';

export function notePauser({ pausers }: ContainerContext, req: RequestId): Step {
  return { change: { pausers: [...pausers, req] } };
}

export function announcePause(context: ContainerContext): Step {
  const record = withState(withEndedHealth(context.record), { status: 'paused' });
  return {
    change: { record, pausers: [] },
    acts: [publish(record), saveLater(record), emit('pause', record), ...settle(context.pausers)],
  };
}

export function announceUnpause(context: ContainerContext): Step {
  const record = withState(context.record, { status: 'running' });
  return {
    change: { record, pausers: [] },
    acts: [publish(record), saveLater(record), emit('unpause', record), ...settle(context.pausers)],
  };
}

export function rejectPausers({ pausers }: ContainerContext, error: EngineError): Step {
  return { change: { pausers: [] }, acts: reject(pausers, error) };
}

/** Notes that the task goes on although this actor did not ask for it. */
export function noteResumed(context: ContainerContext): Step {
  if (context.record.state.status !== 'paused') return NOTHING;
  const record = withState(context.record, { status: 'running' });
  return { change: { record }, acts: [publish(record), saveLater(record), emit('unpause', record)] };
}
