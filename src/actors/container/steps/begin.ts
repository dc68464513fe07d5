/** How an actor comes to its container: it was just made, it could not be made, or it was found. */
import { messageOf, type EngineError } from '../../../errors/engine-error.js';
import type { ContainerContext } from '../container.context.js';
import { withState, type ContainerRecord } from '../container.record.js';
import { withKeptHealth } from '../life/health.js';
import { emit, publish, reject, type Step, withdraw } from './step.js';

export function created(_context: ContainerContext, record: ContainerRecord): Step {
  return { change: { record }, acts: [publish(record), emit('create', record)] };
}

export function notCreated({ record, postponed }: ContainerContext, error: EngineError): Step {
  const reqs = postponed.map(({ req }) => req);
  return { acts: [withdraw(record), ...reject(reqs, error)] };
}

/** Notes that the task of a container was taken over. */
export function adopted(_context: ContainerContext, found: ContainerRecord): Step {
  const record = withKeptHealth(found);
  return { change: { record }, acts: [publish(record)] };
}

/** Notes a failure after which the container goes on: clients can read what failed. */
export function blame(context: ContainerContext, error: EngineError): Step {
  const record = withState(context.record, { error: messageOf(error) });
  return { change: { record }, acts: [publish(record)] };
}
