/**
 * The life of one exec process.
 *
 *   booting ──► created ──► starting ──► running ──► draining ──► exited
 *                   └──────────────────────────────────►┘
 *
 * Owner: the execs collection. A resize that comes while it starts is postponed; a second start is refused.
 */
import { assign, setup } from 'xstate';
import { conflict, invalid, type EngineError } from '../../errors/engine-error.js';
import { limitedEffect } from '../kit/effect.js';
import { inTime, type Pace } from '../kit/pace.js';
import type { RequestId } from '../kit/commands.js';
import type { Replies } from '../kit/replies.js';
import type { ExecCommand, ExecEvent, TerminalSize } from './exec.messages.js';
import type { ExecRecord } from './exec.record.js';

export interface ExecStart {
  readonly record: ExecRecord;
  readonly tty: boolean;
  readonly size: TerminalSize | undefined;
}

export interface ExecEffects {
  /** Brings the process up and returns its host pid. When it fails, or the signal aborts, nothing of it is left. */
  start(input: ExecStart, signal: AbortSignal, pace: Pace): Promise<{ pid: number }>;
  /** Reads output to its end, up to a limit, and forgets the process. */
  drain(record: ExecRecord): Promise<void>;
  resize(record: ExecRecord, size: TerminalSize): Promise<void>;
}

/** Quick calls; none of them throws. */
export interface ExecHooks {
  publish(record: ExecRecord): void;
  emit(action: 'exec_start' | 'exec_die', record: ExecRecord): void;
}

export interface ExecContext {
  readonly record: ExecRecord;
  readonly start: Extract<ExecCommand, { type: 'exec.start' }> | undefined;
  readonly waiters: readonly RequestId[];
  readonly resizes: readonly ResizeCommand[];
  readonly exitCode: number | undefined;
}

type ResizeCommand = Extract<ExecCommand, { type: 'exec.resize' }>;

/** A process whose end nobody told has this exit code. */
const UNTOLD_EXIT_CODE = 137;
/** A process that could not be started, for a reason that has no code of its own, has this exit code. */
const NOT_STARTED_EXIT_CODE = 126;

/** XState gives every action these. */
interface ActionInput {
  readonly context: ExecContext;
  readonly event: ExecEvent;
}

/**
 * Returns the actions that others see, by name. They change nothing in the machine; those that do are `assign` only.
 */
function outwardActions(effects: ExecEffects, hooks: ExecHooks, replies: Replies) {
  const resize = ({ record }: ExecContext, { req, size }: ResizeCommand): void => {
    replies.leaveToWork(req);
    inTime('resize', effects.resize(record, size)).then(
      () => replies.settle(req, undefined),
      (error: unknown) => replies.reject(req, error),
    );
  };
  return {
    publish: ({ context }: ActionInput) => hooks.publish(context.record),
    emitStart: ({ context }: ActionInput) => hooks.emit('exec_start', context.record),
    emitDie: ({ context }: ActionInput) => hooks.emit('exec_die', context.record),
    settleStart: ({ context }: ActionInput) => {
      if (context.start) replies.settle(context.start.req, undefined);
    },
    settleWait: ({ context, event }: ActionInput) => {
      if (event.type === 'exec.wait') replies.settle(event.req, exitCodeOf(context));
    },
    settleWaiters: ({ context }: ActionInput) => {
      for (const req of context.waiters) replies.settle(req, exitCodeOf(context));
    },
    resize: ({ context, event }: ActionInput) => {
      if (event.type === 'exec.resize') resize(context, event);
    },
    resizePostponed: ({ context }: ActionInput) => {
      for (const command of context.resizes) resize(context, command);
    },
    refuseStart: ({ context, event }: ActionInput) => {
      if ('req' in event)
        replies.reject(event.req, conflict(`Error: Exec command ${context.record.id} has already run`));
    },
    failStart: ({ context, event }: ActionInput) => {
      if (context.start) replies.reject(context.start.req, errorOf(event));
    },
    refuseResize: ({ event }: ActionInput) => {
      if ('req' in event) replies.reject(event.req, notStarted());
    },
    refusePostponed: ({ context }: ActionInput) => {
      for (const { req } of context.resizes) replies.reject(req, notStarted());
    },
    crash: ({ event }: ActionInput) => {
      if (event.type === 'effect.hung') throw event.error;
    },
  };
}

function execSetup(effects: ExecEffects, hooks: ExecHooks, replies: Replies) {
  return setup({
    types: { context: {} as ExecContext, events: {} as ExecEvent, input: {} as ExecRecord },
    actors: {
      start: limitedEffect((input: ExecStart, signal, pace) => effects.start(input, signal, pace)),
      drain: limitedEffect((record: ExecRecord) => effects.drain(record)),
    },
    actions: {
      noteStart: assign(({ event }) => (event.type === 'exec.start' ? { start: event } : {})),
      noteStarted: assign(({ context }, { pid }: { readonly pid: number }) => ({
        record: { ...context.record, running: true, pid },
      })),
      noteFailedStart: assign(({ context, event }) => ({
        record: { ...context.record, exitCode: failedStartCode(errorOf(event)) },
      })),
      noteEnd: assign(({ context }) => ({
        record: { ...context.record, running: false, exitCode: context.exitCode ?? UNTOLD_EXIT_CODE },
      })),
      noteWaiter: assign(({ context, event }) =>
        event.type === 'exec.wait' ? { waiters: [...context.waiters, event.req] } : {},
      ),
      noteResize: assign(({ context, event }) =>
        event.type === 'exec.resize' ? { resizes: [...context.resizes, event] } : {},
      ),
      noteExit: assign(({ event }) => (event.type === 'exec.exited' ? { exitCode: event.exit.exitCode } : {})),
      forgetWaiter: assign(({ context, event }) =>
        event.type === 'request.cancelled' ? { waiters: context.waiters.filter((req) => req !== event.req) } : {},
      ),
      forgetWaiters: assign({ waiters: [] }),
      forgetResizes: assign({ resizes: [] }),
      ...outwardActions(effects, hooks, replies),
    },
    guards: {
      hasExit: ({ context }) => context.exitCode !== undefined,
      isOver: ({ context }) => context.record.exitCode !== null,
      isRunning: ({ context }) => context.record.running,
    },
  });
}

export function createExecMachine(effects: ExecEffects, hooks: ExecHooks, replies: Replies) {
  return execSetup(effects, hooks, replies).createMachine({
    id: 'exec',
    context: ({ input }) => newExec(input),
    initial: 'booting',
    on: {
      'request.cancelled': { actions: 'forgetWaiter' },
      'exec.wait': { actions: 'noteWaiter' },
      'exec.start': { actions: 'refuseStart' },
      'exec.resize': { actions: 'refuseResize' },
      'exec.exited': { actions: 'noteExit' },
      'effect.hung': { actions: 'crash' },
    },
    states: {
      /** An earlier actor may have started the process, and the process may have ended. */
      booting: {
        always: [
          { guard: 'isOver', target: 'closing' },
          { guard: 'isRunning', target: 'running' },
          { target: 'created' },
        ],
      },
      /** The exit was reported, but the output may not have been read to its end. */
      closing: {
        invoke: { src: 'drain', input: ({ context }) => context.record, onDone: 'exited', onError: 'exited' },
      },
      created: { on: { 'exec.start': { target: 'starting', actions: 'noteStart' } } },
      starting: {
        invoke: {
          src: 'start',
          input: ({ context: { record, start } }) => ({ record, tty: start?.tty ?? false, size: start?.size }),
          onDone: {
            target: 'running',
            actions: [
              { type: 'noteStarted', params: ({ event }) => event.output },
              'publish',
              'emitStart',
              'settleStart',
              'resizePostponed',
              'forgetResizes',
            ],
          },
          onError: {
            target: 'exited',
            actions: ['noteFailedStart', 'publish', 'failStart', 'refusePostponed', 'forgetResizes'],
          },
        },
        on: { 'exec.resize': { actions: 'noteResize' } },
      },
      running: {
        always: { guard: 'hasExit', target: 'draining' },
        on: { 'exec.resize': { actions: 'resize' } },
      },
      draining: {
        // Clients look at the exit code as soon as the stream ends, so it must be there before.
        entry: ['noteEnd', 'publish', 'emitDie'],
        invoke: { src: 'drain', input: ({ context }) => context.record, onDone: 'exited', onError: 'exited' },
      },
      exited: {
        entry: ['settleWaiters', 'forgetWaiters'],
        on: { 'exec.wait': { actions: 'settleWait' } },
      },
    },
  });
}

export function newExec(record: ExecRecord): ExecContext {
  return { record, start: undefined, waiters: [], resizes: [], exitCode: undefined };
}

function exitCodeOf({ record }: ExecContext): number {
  return record.exitCode ?? UNTOLD_EXIT_CODE;
}

function failedStartCode(error: unknown): number {
  const { exitCode } = (error as EngineError).details;
  return typeof exitCode === 'number' ? exitCode : NOT_STARTED_EXIT_CODE;
}

function errorOf(event: object): unknown {
  return (event as { readonly error?: unknown }).error;
}

function notStarted(): EngineError {
  return invalid('exec process is not started');
}
