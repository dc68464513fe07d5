/** Facts about a running container that do not end its run. */
import type { ContainerContext } from '../container.context.js';
import type { ContainerFact } from '../container.messages.js';
import { withState } from '../container.record.js';
import { withProbeResult } from '../life/health.js';
import { emit, NOTHING, publish, saveLater, type Step } from './step.js';

export function noteOom(context: ContainerContext): Step {
  const record = withState(context.record, { oomKilled: true });
  return { change: { record }, acts: [emit('oom', context.record), publish(record)] };
}

export function noteProbe(
  context: ContainerContext,
  { startedAt, result }: Extract<ContainerFact, { type: 'health.probed' }>,
): Step {
  if (startedAt !== context.record.state.startedAt) return NOTHING;
  const before = context.record.state.health?.status;
  const record = withProbeResult(context.record, result);
  const status = record.state.health?.status;
  // The log of probes alone is not worth a write to the disk.
  if (status === undefined || status === before) return { change: { record }, acts: [publish(record)] };
  return { change: { record }, acts: [publish(record), saveLater(record), emit(`health_status: ${status}`, record)] };
}
