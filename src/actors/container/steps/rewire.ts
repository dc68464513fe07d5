/** The networks of a container were changed, or could not be. */
import type { EngineError } from '../../../errors/engine-error.js';
import type { ContainerContext } from '../container.context.js';
import type { ContainerRecord } from '../container.record.js';
import { publish, reject, settle, type Step } from './step.js';

/** Takes the new networks into the current record, so that events during the effect (such as an OOM) are not lost. */
export function announceRewired(context: ContainerContext, { networks, ports }: ContainerRecord): Step {
  const record = { ...context.record, networks, ports };
  return { change: { record, stoppers: [] }, acts: [publish(record), ...settle(context.stoppers, record)] };
}

export function refuseRewired({ stoppers }: ContainerContext, error: EngineError): Step {
  return { change: { stoppers: [] }, acts: reject(stoppers, error) };
}
