/**
 * Commands that come while an effect runs wait for the next resting state, in their order, and are refused when that
 * takes too long.
 */
import { enqueueActions } from 'xstate';
import { deadline, unavailable, type EngineError } from '../../../errors/engine-error.js';
import type { RequestId } from '../../kit/commands.js';
import { silenceLimitMs } from '../../kit/faults.js';
import { NO_PROGRESS } from '../../kit/pace.js';
import type { ContainerContext } from '../container.context.js';
import { isForceful, type ContainerCommand, type ContainerEvent } from '../container.messages.js';
import type { ContainerRecord } from '../container.record.js';
import { reject, type Act } from './step.js';

/** One actor keeps at most this many commands for later; more are refused. */
const POSTPONED_LIMIT = 1000;

type Collect = Parameters<
  typeof enqueueActions<
    ContainerContext,
    ContainerEvent,
    undefined,
    ContainerEvent,
    never,
    Act,
    never,
    'patience',
    never
  >
>[0];
const steps = (collect: Collect) => enqueueActions(collect);

export const postpone = steps(({ context, event, enqueue }) => {
  const command = event as ContainerCommand;
  if (context.postponed.length >= POSTPONED_LIMIT) {
    reject([command.req], overloaded(context.record)).forEach((act) => enqueue(act));
    return;
  }
  enqueue.assign({ postponed: [...context.postponed, command] });
  enqueue.raise({ type: 'patience.over', req: command.req }, { delay: 'patience', id: patienceId(command) });
});

/**
 * Changes of the record wait for the end of a passing state, because its effect makes a record of its own. They are
 * made to that record.
 */
export const postponeAmends = steps(({ context, event, enqueue }) => {
  const [first, ...others] = context.amends;
  if (event.type === 'amend.failed' && first) reject([first.req], event.error).forEach((act) => enqueue(act));
  const left = event.type === 'amend.failed' ? others : context.amends;
  for (const { req } of left)
    enqueue.raise({ type: 'patience.over', req }, { delay: 'patience', id: patienceId({ req }) });
  enqueue.assign({ amends: [], postponed: [...left, ...context.postponed] });
});

/** Takes up what was postponed; called in a resting state. */
export const resume = steps(({ context, enqueue }) => {
  if (context.postponed.length === 0) return;
  for (const command of context.postponed) {
    enqueue.cancel(patienceId(command));
    enqueue.raise(command);
  }
  enqueue.assign({ postponed: [] });
});

/** Refuses a command that was postponed for too long. */
export const refusePostponed = steps(({ context, event, enqueue }) => {
  if (event.type !== 'patience.over') return;
  const late = context.postponed.find(({ req }) => req === event.req);
  if (!late) return;
  const error = busy(context.record);
  // This command has to end what hangs: the effect is given up, and the next actor finds out how the container is.
  if (isForceful(late)) return enqueue({ type: 'crash', params: { error } });
  enqueue.assign({ postponed: context.postponed.filter(({ req }) => req !== event.req) });
  reject([event.req], error).forEach((act) => enqueue(act));
});

/** Returns the name of the timer of a postponed command. */
function patienceId({ req }: { readonly req: RequestId }): string {
  return `patience.${req}`;
}

/** Returns the error for a command that has waited too long for an earlier one. */
function busy({ id }: ContainerRecord): EngineError {
  return deadline(`container ${id} has been busy for ${Math.round(silenceLimitMs() / 1000)} seconds; try again later`, {
    code: NO_PROGRESS,
  });
}

function overloaded({ id }: ContainerRecord): EngineError {
  return unavailable(`too many commands wait for container ${id}`, { code: 'OVERLOADED' });
}
