/** Clients that wait for the end of a container, or of a run of it. */
import type { RequestCancelled } from '../../kit/commands.js';
import type { ContainerContext, Waiter } from '../container.context.js';
import type { ContainerCommand, WaitResult } from '../container.messages.js';
import type { ContainerRecord } from '../container.record.js';
import { type Act, settle, type Step } from './step.js';

type WaitCommand = Extract<ContainerCommand, { type: 'container.wait' }>;

/** Waits for these conditions are answered when a run has ended, or has not come about. */
export const AT_THE_END: readonly Waiter['condition'][] = ['not-running', 'next-exit', 'exit'];
export const AT_THE_REMOVAL: readonly Waiter['condition'][] = [...AT_THE_END, 'removed'];

export function waitResult({ state }: ContainerRecord): WaitResult {
  return state.error === '' ? { exitCode: state.exitCode } : { exitCode: state.exitCode, error: state.error };
}

export function wait({ waiters }: ContainerContext, { req, condition }: WaitCommand): Step {
  return { change: { waiters: [...waiters, { req, condition }] } };
}

export function answerWait({ record }: ContainerContext, { req }: WaitCommand): Step {
  return { acts: settle([req], waitResult(record)) };
}

/** Forgets the wait of a client that has left. Stops and removals that were asked for go on. */
export function forgetRequest({ waiters }: ContainerContext, cancelled: RequestCancelled): Step {
  return { change: { waiters: waiters.filter(({ req }) => req !== cancelled.req) } };
}

/** Answers those who wait for one of the conditions; returns the others, who wait on. */
export function wake(
  waiters: readonly Waiter[],
  conditions: readonly Waiter['condition'][],
  record: ContainerRecord,
): { readonly waiters: readonly Waiter[]; readonly acts: readonly Act[] } {
  return {
    waiters: waiters.filter(({ condition }) => !conditions.includes(condition)),
    acts: waiters
      .filter(({ condition }) => conditions.includes(condition))
      .flatMap(({ req, condition }) => settle([req], condition === 'exit' ? undefined : waitResult(record))),
  };
}
