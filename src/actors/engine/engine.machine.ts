/**
 * The root actor: the daemon's life as states, with the collections as its only, fixed children.
 *
 *   booting ──► recovering ──► opening ──► serving ──► draining ──► stopped
 *      └────────────┴─────────────┴──► failing ──► failed
 *
 * A crash in a child is handled by its collection; a crash of a collection ends the daemon, for the service manager to
 * start it anew: containers go on under their shims.
 */
import { assign, setup, type AnyActorLogic } from 'xstate';
import { effect } from '../kit/effect.js';

export interface EngineSteps {
  /** Loads stores and starts drivers. */
  boot(): Promise<void>;
  /** The daemon is told to end before it has booted: `boot` need not succeed any more. */
  interruptBoot(): void;
  /** Brings back what was there before: containers get their actors. */
  recover(): Promise<void>;
  /** Opens the listeners. */
  open(): Promise<void>;
  /**
   * Closes listeners, stops containers, closes drivers, in this order. After a failure of the daemon containers are
   * left as they are.
   */
  drain(): Promise<void>;
  onServing(): void;
  onFailed(error: unknown): void;
}

export type EngineEvent = { readonly type: 'engine.stop' };

const STOPPING = { guard: 'stopAsked', target: 'draining' } as const;
const FAILING = { target: 'failing', actions: 'announceFailed' } as const;

/** Creates the root machine. `children` are started with it, each under its name. */
export function createEngineMachine(steps: EngineSteps, children: Readonly<Record<string, AnyActorLogic>>) {
  return setup({
    types: { events: {} as EngineEvent, context: {} as { readonly stopAsked: boolean } },
    actors: {
      boot: effect<void, undefined>(() => steps.boot()),
      recover: effect<void, undefined>(() => steps.recover()),
      open: effect<void, undefined>(() => steps.open()),
      drain: effect<void, undefined>(() => steps.drain()),
    },
    guards: { stopAsked: ({ context }) => context.stopAsked },
    actions: {
      noteStop: assign({ stopAsked: true }),
      interruptBoot: () => steps.interruptBoot(),
      announceServing: () => steps.onServing(),
      announceFailed: ({ event }) => steps.onFailed((event as { error?: unknown }).error),
    },
  }).createMachine({
    id: 'engine',
    context: { stopAsked: false },
    invoke: Object.entries(children).map(([id, src]) => ({ id, src, systemId: id }) as never),
    initial: 'booting',
    // Operations under way finish first, because the shutdown takes away the drivers that they use.
    on: { 'engine.stop': { actions: 'noteStop' } },
    states: {
      booting: {
        invoke: { src: 'boot', onDone: [STOPPING, { target: 'recovering' }], onError: [STOPPING, FAILING] },
        on: { 'engine.stop': { actions: ['noteStop', 'interruptBoot'] } },
      },
      recovering: {
        invoke: { src: 'recover', onDone: [STOPPING, { target: 'opening' }], onError: [STOPPING, FAILING] },
      },
      opening: { invoke: { src: 'open', onDone: [STOPPING, { target: 'serving' }], onError: [STOPPING, FAILING] } },
      serving: { entry: 'announceServing', on: { 'engine.stop': 'draining' } },
      draining: {
        invoke: { src: 'drain', onDone: 'stopped', onError: { target: 'stopped', actions: 'announceFailed' } },
        on: { 'engine.stop': {} },
      },
      stopped: { type: 'final' },
      failing: {
        invoke: { src: 'drain', onDone: 'failed', onError: 'failed' },
        on: { 'engine.stop': {} },
      },
      failed: { type: 'final' },
    },
  });
}
