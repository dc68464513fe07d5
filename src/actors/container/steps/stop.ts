/** Stops, restarts and signals: who asked, what is planned, and what a container that outlives them answers. */
import type { EngineError } from '../../../errors/engine-error.js';
import { SIGKILL } from '../../../text/signals.js';
import type { RequestId } from '../../kit/commands.js';
import type { ContainerContext } from '../container.context.js';
import type { ContainerCommand, ContainerEvent, StopOptions } from '../container.messages.js';
import { withState } from '../container.record.js';
import { cancelsRestart, stopInput } from '../life/stop-input.js';
import { emit, publish, reject, saveLater, type Step } from './step.js';
import { AT_THE_END, wake } from './waits.js';

export function noteStopper({ stoppers }: ContainerContext, req: RequestId): Step {
  return { change: { stoppers: [...stoppers, req] } };
}

export function noteRestarter({ restarters }: ContainerContext, req: RequestId): Step {
  return { change: { restarters: [...restarters, req] } };
}

/** Plans a stop: a forced removal stops by SIGKILL at once, the others as they say. */
export function planStop(context: ContainerContext, event: ContainerEvent): Step {
  const options: StopOptions =
    'options' in event && event.type !== 'container.remove' ? event.options : { signal: SIGKILL, timeoutSeconds: 0 };
  const planned = stopInput(context.record, options);
  // A stop under way may end sooner by this one, but not later.
  const stop = { ...planned, killAtMs: Math.min(planned.killAtMs, context.stop?.killAtMs ?? Infinity) };
  if (event.type === 'container.shutdown') return { change: { stop, leaving: true } };
  const record = { ...context.record, manuallyStopped: true };
  // The stop is answered when this is on disk: see the effect `drain`.
  return { change: { stop, record }, acts: [saveLater(record)] };
}

/** Answers those who wait for a stop when the container outlived SIGKILL. */
export function stopFailed({ stoppers, restarters, removal }: ContainerContext, error: EngineError): Step {
  return {
    change: { stoppers: [], restarters: [], removal: undefined, stop: undefined },
    acts: reject([...stoppers, ...restarters, ...(removal?.reqs ?? [])], error),
  };
}

/** Sends a signal, without a change of state. SIGKILL is answered when the exit is settled. */
export function kill(
  context: ContainerContext,
  { req, signal, wasTold = false }: Extract<ContainerCommand, { type: 'container.kill' }>,
): Step {
  const waitsForExit = signal === SIGKILL;
  const staysDown = cancelsRestart(context.record, signal) && !context.record.manuallyStopped;
  const record = staysDown ? { ...context.record, manuallyStopped: true } : context.record;
  return {
    change: waitsForExit ? { record, waiters: [...context.waiters, { req, condition: 'exit' }] } : { record },
    acts: [{ type: 'sendSignal', params: { req, record, signal, wasTold, staysDown, waitsForExit } }],
  };
}

/** Ends the wait for a restart because the daemon goes down: the restart comes with the next daemon. */
export function restBackoff({ record: before }: ContainerContext, req: RequestId): Step {
  const record = withState(before, { status: 'exited' });
  return { change: { record }, acts: [publish(record), { type: 'settleWhenSaved', params: { req, record } }] };
}

/** Ends the restarts of the policy because a client wants that. */
export function giveUpRestart(context: ContainerContext, req: RequestId): Step {
  const record = withState({ ...context.record, manuallyStopped: true }, { status: 'exited' });
  const woken = wake(context.waiters, AT_THE_END, record);
  return {
    change: { record, waiters: woken.waiters },
    acts: [publish(record), emit('stop', record), { type: 'settleWhenSaved', params: { req, record } }, ...woken.acts],
  };
}
