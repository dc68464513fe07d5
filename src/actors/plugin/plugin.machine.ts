/**
 * The life of a managed plugin.
 *
 *   booting ──► disabled ──► starting ──► running ──► stopping ──► disabled
 *      │           ▲  └► changing ┘          │ exit
 *      └► restoring ──────────────► waiting ◄┘──► restarting ──► running
 *
 * Owner: the plugins collection. Commands come one after the other; one that comes while a process is started by itself
 * is postponed. A plugin that is enabled and dies is started again, later each time, until it is disabled.
 */
import { assign, raise, setup } from 'xstate';
import type { EngineError } from '../../errors/engine-error.js';
import type { PluginRecord } from '../../ports/managed-plugin.js';
import { limitedEffect } from '../kit/effect.js';
import type { Pace } from '../kit/pace.js';
import type { Replies } from '../kit/replies.js';
import type { PluginCommand, PluginEvent } from './plugin.messages.js';

type ChangeCommand = Extract<PluginCommand, { type: 'plugin.set' | 'plugin.upgrade' | 'plugin.remove' }>;

export interface PluginEffects {
  /** Starts the process and waits until it listens. When it fails, nothing of it is left. */
  start(record: PluginRecord, signal: AbortSignal, pace: Pace): Promise<void>;
  /** Takes over the process of an earlier daemon, or starts it. */
  restore(record: PluginRecord, signal: AbortSignal, pace: Pace): Promise<void>;
  stop(record: PluginRecord, pace: Pace): Promise<void>;
  save(record: PluginRecord): Promise<void>;
  /** Carries out a change of a plugin that does not run. Undefined: it is gone. */
  change(record: PluginRecord, command: ChangeCommand, pace: Pace): Promise<PluginRecord | undefined>;
}

/** Quick calls; none of them throws except `refusal`'s result. */
export interface PluginHooks {
  publish(record: PluginRecord, isRunning: boolean): void;
  /** Returns why a plugin cannot be disabled or removed now. */
  refusal(record: PluginRecord, command: PluginCommand): EngineError | undefined;
  /** Says that a plugin died or could not be started, and in how many milliseconds it will be tried again. */
  failed(record: PluginRecord, reason: unknown, againMs: number): void;
}

export interface PluginContext {
  readonly record: PluginRecord;
  /** The command that is being carried out. */
  readonly job: PluginCommand | undefined;
  readonly postponed: PluginCommand | undefined;
  readonly hasExited: boolean;
  /** Failed starts and deaths in a row. */
  readonly failures: number;
}

/** Waits grow from the first to the second number, in milliseconds. */
const FIRST_WAIT_MS = 200;
const LONGEST_WAIT_MS = 60_000;
/** A plugin that has run for so long did not fail at starting. */
const STABLE_MS = 10_000;

interface ActionInput {
  readonly context: PluginContext;
  readonly event: PluginEvent;
}

export function waitMs({ failures }: PluginContext): number {
  return Math.min(FIRST_WAIT_MS * 2 ** Math.max(failures - 1, 0), LONGEST_WAIT_MS);
}

function outwardActions(hooks: PluginHooks, replies: Replies) {
  return {
    publishRunning: ({ context }: ActionInput) => hooks.publish(context.record, true),
    publishStopped: ({ context }: ActionInput) => hooks.publish(context.record, false),
    settle: ({ context }: ActionInput) => {
      if (context.job) replies.settle(context.job.req, context.record);
    },
    fail: ({ context, event }: ActionInput) => {
      if (context.job) replies.reject(context.job.req, errorOf(event));
    },
    refuse: ({ context, event }: ActionInput) => {
      if ('req' in event) replies.reject(event.req, hooks.refusal(context.record, event as PluginCommand));
    },
    settleUnchanged: ({ context, event }: ActionInput) => {
      if ('req' in event) replies.settle(event.req, context.record);
    },
    tellDeath: ({ context, event }: ActionInput) =>
      hooks.failed(context.record, event.type === 'plugin.exited' ? event.exit : errorOf(event), waitMs(context)),
    crash: ({ event }: ActionInput) => {
      if (event.type === 'effect.hung') throw event.error;
    },
  };
}

function pluginSetup(effects: PluginEffects, hooks: PluginHooks, replies: Replies) {
  return setup({
    types: { context: {} as PluginContext, events: {} as PluginEvent, input: {} as PluginRecord },
    actors: {
      start: limitedEffect(async (record: PluginRecord, signal, pace) => {
        await effects.start(record, signal, pace);
        await effects.save(record);
      }),
      restart: limitedEffect((record: PluginRecord, signal, pace) => effects.start(record, signal, pace)),
      restore: limitedEffect((record: PluginRecord, signal, pace) => effects.restore(record, signal, pace)),
      stop: limitedEffect(async (record: PluginRecord, _signal, pace) => {
        await effects.save(record);
        await effects.stop(record, pace);
      }),
      change: limitedEffect(
        ({ record, job }: { readonly record: PluginRecord; readonly job: ChangeCommand }, _signal, pace) =>
          effects.change(record, job, pace),
      ),
    },
    actions: {
      noteJob: assign(({ event }) => ({ job: event as PluginCommand })),
      forgetJob: assign({ job: undefined }),
      postpone: assign(({ event }) => ({ postponed: event as PluginCommand })),
      resume: raise(({ context }) => context.postponed as PluginCommand),
      forgetPostponed: assign({ postponed: undefined }),
      noteEnabled: assign(({ context }) => ({ record: enabledAs(context) })),
      noteDisabled: assign(({ context }) => ({ record: disabledAs(context) })),
      noteChanged: assign(({ event }) => ({ record: (event as { readonly output?: unknown }).output as PluginRecord })),
      noteExit: assign({ hasExited: true }),
      forgetExit: assign({ hasExited: false }),
      noteFailure: assign(({ context }) => ({ failures: context.failures + 1 })),
      forgetFailures: assign({ failures: 0 }),
      ...outwardActions(hooks, replies),
    },
    guards: {
      isEnabled: ({ context }) => context.record.enabled,
      hasExited: ({ context }) => context.hasExited,
      hasPostponed: ({ context }) => context.postponed !== undefined,
      isRefused: ({ context, event }) => hooks.refusal(context.record, event as PluginCommand) !== undefined,
      isRemoval: ({ context }) => context.job?.type === 'plugin.remove',
      isRest: ({ context }) => context.job?.type === 'plugin.rest',
    },
    delays: { beforeRestart: ({ context }) => waitMs(context), stable: STABLE_MS },
  });
}

const POSTPONE = { actions: 'postpone' } as const;
const POSTPONED = {
  'plugin.enable': POSTPONE,
  'plugin.disable': POSTPONE,
  'plugin.set': POSTPONE,
  'plugin.upgrade': POSTPONE,
  'plugin.remove': POSTPONE,
  'plugin.rest': POSTPONE,
} as const;
const RESUMED = { guard: 'hasPostponed', actions: ['resume', 'forgetPostponed'] } as const;
const REFUSED = { guard: 'isRefused', actions: 'refuse' } as const;
const STOP = { target: 'stopping', actions: 'noteJob' } as const;
/** A plugin that is enabled can be told this, whether its process runs or is waited for. */
const WHILE_ENABLED = {
  'plugin.enable': REFUSED,
  'plugin.set': REFUSED,
  'plugin.upgrade': REFUSED,
  'plugin.disable': [REFUSED, STOP],
  'plugin.remove': [REFUSED, STOP],
  'plugin.rest': STOP,
} as const;
const FAILED_START = { target: 'waiting', actions: ['noteFailure', 'tellDeath'] } as const;
const STOPPED = [
  { guard: 'isRest', target: 'resting', actions: ['settle', 'forgetJob'] },
  { guard: 'isRemoval', target: 'changing', actions: ['noteDisabled', 'publishStopped'] },
  { target: 'disabled', actions: ['noteDisabled', 'publishStopped', 'settle', 'forgetJob'] },
] as const;

const CHANGED = [
  { guard: 'isRemoval', target: 'removed', actions: ['settle', 'forgetJob'] },
  { target: 'disabled', actions: ['noteChanged', 'publishStopped', 'settle', 'forgetJob'] },
] as const;

/** A state in which a process is brought up without anybody having asked for it. */
function launching<Src extends 'restore' | 'restart'>(src: Src) {
  return {
    entry: 'forgetExit',
    on: POSTPONED,
    invoke: {
      src,
      input: ({ context }: { readonly context: PluginContext }) => context.record,
      onDone: 'running',
      onError: FAILED_START,
    },
  } as const;
}

export function createPluginMachine(effects: PluginEffects, hooks: PluginHooks, replies: Replies) {
  return pluginSetup(effects, hooks, replies).createMachine({
    id: 'plugin',
    context: ({ input }) => ({ record: input, job: undefined, postponed: undefined, hasExited: false, failures: 0 }),
    initial: 'booting',
    on: { 'plugin.exited': { actions: 'noteExit' }, 'effect.hung': { actions: 'crash' } },
    states: {
      booting: { always: [{ guard: 'isEnabled', target: 'restoring' }, { target: 'disabled' }] },
      restoring: launching('restore'),
      disabled: {
        entry: 'publishStopped',
        on: {
          'plugin.enable': { target: 'starting', actions: 'noteJob' },
          'plugin.disable': REFUSED,
          'plugin.set': { target: 'changing', actions: 'noteJob' },
          'plugin.upgrade': { target: 'changing', actions: 'noteJob' },
          'plugin.remove': [REFUSED, { target: 'changing', actions: 'noteJob' }],
          'plugin.rest': { actions: 'settleUnchanged' },
        },
      },
      starting: {
        entry: 'forgetExit',
        invoke: {
          src: 'start',
          input: ({ context }) => enabledAs(context),
          onDone: { target: 'running', actions: ['noteEnabled', 'publishRunning', 'settle', 'forgetJob'] },
          onError: { target: 'disabled', actions: ['fail', 'forgetJob'] },
        },
      },
      running: {
        entry: 'publishRunning',
        always: [{ guard: 'hasExited', target: 'waiting', actions: ['noteFailure', 'tellDeath'] }, RESUMED],
        after: { stable: { actions: 'forgetFailures' } },
        on: {
          ...WHILE_ENABLED,
          'plugin.exited': { target: 'waiting', actions: ['noteFailure', 'tellDeath'] },
        },
      },
      /** The process is gone and will be started again. */
      waiting: {
        entry: 'publishStopped',
        always: RESUMED,
        after: { beforeRestart: 'restarting' },
        on: WHILE_ENABLED,
      },
      restarting: launching('restart'),
      stopping: {
        invoke: {
          src: 'stop',
          input: ({ context }) => (context.job?.type === 'plugin.rest' ? context.record : disabledAs(context)),
          onDone: STOPPED,
          onError: { target: 'disabled', actions: ['noteDisabled', 'fail', 'forgetJob'] },
        },
      },
      changing: {
        invoke: {
          src: 'change',
          input: ({ context }) => ({ record: context.record, job: context.job as ChangeCommand }),
          onDone: CHANGED,
          onError: { target: 'disabled', actions: ['fail', 'forgetJob'] },
        },
      },
      /** The daemon ends. */
      resting: {},
      removed: { type: 'final' },
    },
  });
}

function enabledAs({ record, job }: PluginContext): PluginRecord {
  return { ...record, enabled: true, timeoutSeconds: job?.type === 'plugin.enable' ? job.timeoutSeconds : 0 };
}

function disabledAs({ record }: PluginContext): PluginRecord {
  return { ...record, enabled: false };
}

function errorOf(event: object): unknown {
  return (event as { readonly error?: unknown }).error;
}
