/** Changes of the record that clients ask for: one at a time is written to disk, and then seen. */
import type { ContainerContext } from '../container.context.js';
import type { AmendCommand, AmendOutcome } from '../container.messages.js';
import type { ContainerRecord } from '../container.record.js';
import { type Act, NOTHING, publish, reject, settle, type Step } from './step.js';

/** Begins to write the first change that can be made, and refuses those before it. Returns the remaining changes. */
function writeFirst(
  amends: readonly AmendCommand[],
  base: ContainerRecord,
): { readonly amends: readonly AmendCommand[]; readonly acts: readonly Act[] } {
  const acts: Act[] = [];
  for (const [index, { req, amend: changed }] of amends.entries()) {
    try {
      acts.push({ type: 'writeAmend', params: { base, record: changed(base) } });
      return { amends: amends.slice(index), acts };
    } catch (error) {
      acts.push(...reject([req], error));
    }
  }
  return { amends: [], acts };
}

export function amend(context: ContainerContext, command: AmendCommand): Step {
  const amends = [...context.amends, command];
  if (amends.length > 1) return { change: { amends } };
  const next = writeFirst(amends, context.record);
  return { change: { amends: next.amends }, acts: next.acts };
}

/** Readers see a change when it is on disk. If the record has changed meanwhile, the change is made again. */
export function applyAmend(
  context: ContainerContext,
  { base, record }: Extract<AmendOutcome, { type: 'amend.saved' }>,
): Step {
  const [first, ...others] = context.amends;
  if (!first) return NOTHING;
  if (base !== context.record) {
    const again = writeFirst(context.amends, context.record);
    return { change: { amends: again.amends }, acts: again.acts };
  }
  const next = writeFirst(others, record);
  return {
    change: { record, amends: next.amends },
    acts: [
      { type: 'confirmAmend', params: { command: first, record } },
      publish(record),
      ...settle([first.req], record),
      ...next.acts,
    ],
  };
}

export function refuseAmend(
  { amends, record }: ContainerContext,
  { error }: Extract<AmendOutcome, { type: 'amend.failed' }>,
): Step {
  const [first, ...others] = amends;
  if (!first) return NOTHING;
  const next = writeFirst(others, record);
  return { change: { amends: next.amends }, acts: [...reject([first.req], error), ...next.acts] };
}
