/**
 * The root actor: the daemon's life as states, with the collections as its only, fixed children.
 *
 *   booting ──► recovering ──► opening ──► serving ──► draining ──► stopped
 *      └────────────┴─────────────┴──► failing ──► failed
 *
 * A crash in a child is handled by its collection; a crash of a collection ends the daemon, for the service manager to
 * start it anew: containers go on under their shims.
 */
import { setup, type AnyActorLogic } from 'xstate';
import { effect } from '../kit/effect.js';

export interface EngineSteps {
  /** Loads stores and starts drivers. */
  boot(): Promise<void>;
  /** Brings back what was there before: containers get their actors. */
  recover(): Promise<void>;
  /** Opens the listeners. */
  open(): Promise<void>;
  /** Closes listeners, stops containers, closes drivers, in this order. After a failure containers are left as they are. */
  drain(): Promise<void>;
  onServing(): void;
  onFailed(error: unknown): void;
  onStopped(): void;
}

export type EngineEvent = { readonly type: 'engine.stop' };

/** `children` are started with the root, each under its name. */
export function createEngineMachine(steps: EngineSteps, children: Readonly<Record<string, AnyActorLogic>>) {
  return setup({
    types: { events: {} as EngineEvent, context: {} as { readonly stopAsked: boolean } },
    actors: {
      boot: effect<void, undefined>(() => steps.boot()),
      recover: effect<void, undefined>(() => steps.recover()),
      open: effect<void, undefined>(() => steps.open()),
      drain: effect<void, undefined>(() => steps.drain()),
    },
    actions: {
      failed: ({ event }) => steps.onFailed((event as { error?: unknown }).error),
    },
  }).createMachine({
    id: 'engine',
    context: { stopAsked: false },
    invoke: Object.entries(children).map(([id, src]) => ({ id, src, systemId: id }) as never),
    initial: 'booting',
    on: { 'engine.stop': '.draining' },
    states: {
      booting: { invoke: { src: 'boot', onDone: 'recovering', onError: { target: 'failing', actions: 'failed' } } },
      recovering: { invoke: { src: 'recover', onDone: 'opening', onError: { target: 'failing', actions: 'failed' } } },
      opening: { invoke: { src: 'open', onDone: 'serving', onError: { target: 'failing', actions: 'failed' } } },
      serving: { entry: () => steps.onServing() },
      draining: {
        invoke: { src: 'drain', onDone: 'stopped', onError: { target: 'stopped', actions: 'failed' } },
        on: { 'engine.stop': {} },
      },
      stopped: { entry: () => steps.onStopped(), type: 'final' },
      failing: {
        invoke: { src: 'drain', onDone: 'failed', onError: 'failed' },
        on: { 'engine.stop': {} },
      },
      failed: { type: 'final' },
    },
  });
}
