/**
 * The probing of one container that has a health check.
 *
 *   waiting ◄──► probing        suspended: while the container is paused
 *
 * Owner: the collection of health checks, which has an actor for each running container with a check. What a result
 * means is decided by the container (container/health.ts), which is told of each.
 */
import { assign, setup } from 'xstate';
import type { ProbePlan, ProbeResult } from '../container/life/health.js';
import { effect } from '../kit/effect.js';

export interface HealthInput {
  readonly containerId: string;
  /** The run of the container that is probed. */
  readonly startedAt: string;
  readonly plan: ProbePlan;
  readonly isPaused: boolean;
}

export type HealthEvent = { readonly type: 'health.suspend' } | { readonly type: 'health.resume' };

export interface HealthEffects {
  /** Resolves when the next probe is due. */
  untilNext(input: HealthInput, signal: AbortSignal): Promise<void>;
  /** Runs the probe within its timeout. An abort ends its process, without waiting for it. */
  probe(input: HealthInput, signal: AbortSignal): Promise<ProbeResult>;
}

export function createHealthMachine(effects: HealthEffects, report: (input: HealthInput, result: ProbeResult) => void) {
  return setup({
    types: { context: {} as HealthInput, events: {} as HealthEvent, input: {} as HealthInput },
    actors: {
      untilNext: effect((input: HealthInput, signal) => effects.untilNext(input, signal)),
      probe: effect((input: HealthInput, signal) => effects.probe(input, signal)),
    },
    guards: { isPaused: ({ context }) => context.isPaused },
  }).createMachine({
    id: 'health',
    context: ({ input }) => input,
    initial: 'waiting',
    on: { 'health.suspend': { target: '.suspended', actions: assign({ isPaused: true }) } },
    states: {
      waiting: {
        always: { guard: 'isPaused', target: 'suspended' },
        invoke: { src: 'untilNext', input: ({ context }) => context, onDone: 'probing', onError: 'probing' },
      },
      probing: {
        invoke: {
          src: 'probe',
          input: ({ context }) => context,
          onDone: { target: 'waiting', actions: ({ context, event }) => report(context, event.output) },
          // What the probe could not do is a result; this is for bugs, which must not end the probing.
          onError: 'waiting',
        },
      },
      suspended: { on: { 'health.resume': { target: 'waiting', actions: assign({ isPaused: false }) } } },
    },
  });
}
