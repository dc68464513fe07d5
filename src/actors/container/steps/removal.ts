/** A container is removed: who asked for it, what others are told meanwhile, and how it ended. */
import { messageOf, notFound, type EngineError } from '../../../errors/engine-error.js';
import type { ContainerContext } from '../container.context.js';
import type { ContainerCommand } from '../container.messages.js';
import { withState } from '../container.record.js';
import { removedNoStart } from '../life/refusals.js';
import { emit, publish, reject, saveLater, settle, type Step, withdraw } from './step.js';
import { AT_THE_REMOVAL, waitResult, wake } from './waits.js';

export function noteRemoval(
  { removal }: ContainerContext,
  { req, options }: Extract<ContainerCommand, { type: 'container.remove' }>,
): Step {
  return { change: { removal: { reqs: [...(removal?.reqs ?? []), req], options } } };
}

export function announceRemoval(context: ContainerContext): Step {
  const record = withState(context.record, { status: 'removing' });
  return {
    change: { record, restarters: [] },
    acts: [publish(record), ...reject(context.restarters, removedNoStart())],
  };
}

export function removed({ record, waiters, removal, postponed, amends }: ContainerContext): Step {
  const unanswered = [...postponed, ...amends].map(({ req }) => req);
  return {
    acts: [
      withdraw(record),
      // The removal succeeded, whatever went wrong before.
      ...wake(waiters, AT_THE_REMOVAL, withState(record, { error: '' })).acts,
      emit('destroy', record),
      { type: 'forget', params: { id: record.id } },
      ...settle(removal?.reqs ?? []),
      ...reject(unanswered, notFound(`No such container: ${record.id}`, { code: 'NO_SUCH_CONTAINER' })),
    ],
  };
}

export function removalFailed(context: ContainerContext, failure: EngineError): Step {
  const error = messageOf(failure);
  const record = withState(context.record, { status: 'dead', error });
  const waiting = context.waiters.map(({ req }) => req);
  return {
    change: { record, removal: undefined, waiters: [] },
    acts: [
      publish(record),
      ...reject(context.removal?.reqs ?? [], failure),
      saveLater(record),
      ...settle(waiting, { ...waitResult(record), error }),
    ],
  };
}
