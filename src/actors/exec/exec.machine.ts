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
  /** Brings the process up and returns its host pid. When it fails, or the signal aborts, nothing is left. */
  start(input: ExecStart, signal: AbortSignal, pace: Pace): Promise<{ pid: number }>;
  /** Reads output to its end (bounded) and forgets the process. */
  drain(record: ExecRecord): Promise<void>;
  resize(record: ExecRecord, size: TerminalSize): Promise<void>;
}

export interface ExecHooks {
  publish(record: ExecRecord): void;
  emit(action: 'exec_start' | 'exec_die', record: ExecRecord): void;
}

interface ExecContext {
  readonly record: ExecRecord;
  readonly start: Extract<ExecCommand, { type: 'exec.start' }> | undefined;
  readonly waiters: readonly RequestId[];
  readonly resizes: readonly Extract<ExecCommand, { type: 'exec.resize' }>[];
  readonly exitCode: number | undefined;
}

export function createExecMachine(effects: ExecEffects, hooks: ExecHooks, replies: Replies) {
  const publish = (record: ExecRecord): ExecRecord => {
    hooks.publish(record);
    return record;
  };
  const resize = (
    record: ExecRecord,
    { req, size }: { readonly req: RequestId; readonly size: TerminalSize },
  ): void => {
    inTime('resize', effects.resize(record, size)).then(
      () => replies.settle(req, undefined),
      (error: unknown) => replies.reject(req, error),
    );
  };
  return setup({
    types: { context: {} as ExecContext, events: {} as ExecEvent, input: {} as ExecRecord },
    actors: {
      start: limitedEffect((input: ExecStart, signal, pace) => effects.start(input, signal, pace)),
      drain: limitedEffect((record: ExecRecord) => effects.drain(record)),
    },
    actions: {
      crash: ({ event }) => {
        if (event.type === 'effect.hung') throw event.error;
      },
      refuseStart: ({ context, event }) => {
        if ('req' in event)
          replies.reject(event.req, conflict(`Error: Exec command ${context.record.id} has already run`));
      },
      refuseResize: ({ event }) => {
        if ('req' in event) replies.reject(event.req, invalid('exec process is not started'));
      },
      noteExit: assign(({ event }) => (event.type === 'exec.exited' ? { exitCode: event.exit.exitCode } : {})),
    },
    guards: {
      hasExit: ({ context }) => context.exitCode !== undefined,
      isOver: ({ context }) => context.record.exitCode !== null,
      isRunning: ({ context }) => context.record.running,
    },
  }).createMachine({
    id: 'exec',
    context: ({ input }) => ({ record: input, start: undefined, waiters: [], resizes: [], exitCode: undefined }),
    initial: 'booting',
    on: {
      'request.cancelled': {
        actions: assign(({ context, event }) => ({ waiters: context.waiters.filter((req) => req !== event.req) })),
      },
      'exec.wait': { actions: assign(({ context, event }) => ({ waiters: [...context.waiters, event.req] })) },
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
      created: { on: { 'exec.start': { target: 'starting', actions: assign(({ event }) => ({ start: event })) } } },
      starting: {
        invoke: {
          src: 'start',
          input: ({ context }) => ({
            record: context.record,
            tty: context.start?.tty ?? false,
            size: context.start?.size,
          }),
          onDone: {
            target: 'running',
            actions: assign(({ context, event }) => {
              const record = publish({ ...context.record, running: true, pid: event.output.pid });
              hooks.emit('exec_start', record);
              if (context.start) replies.settle(context.start.req, undefined);
              for (const command of context.resizes) resize(record, command);
              return { record, resizes: [] };
            }),
          },
          onError: {
            target: 'exited',
            actions: assign(({ context, event }) => {
              const error = event.error as EngineError;
              const exitCode = typeof error.details['exitCode'] === 'number' ? error.details['exitCode'] : 126;
              if (context.start) replies.reject(context.start.req, error);
              for (const { req } of context.resizes) replies.reject(req, invalid('exec process is not started'));
              for (const req of context.waiters) replies.settle(req, exitCode);
              return { record: publish({ ...context.record, exitCode }), waiters: [], resizes: [] };
            }),
          },
        },
        on: { 'exec.resize': { actions: assign(({ context, event }) => ({ resizes: [...context.resizes, event] })) } },
      },
      running: {
        always: { guard: 'hasExit', target: 'draining' },
        on: { 'exec.resize': { actions: ({ context, event }) => resize(context.record, event) } },
      },
      draining: {
        // Clients look at the exit code as soon as the stream ends: it must be there before.
        entry: assign(({ context }) => {
          const record = publish({ ...context.record, running: false, exitCode: context.exitCode ?? 137 });
          hooks.emit('exec_die', record);
          return { record };
        }),
        invoke: {
          src: 'drain',
          input: ({ context }) => context.record,
          onDone: 'exited',
          onError: 'exited',
        },
      },
      exited: {
        entry: assign(({ context }) => {
          for (const req of context.waiters) replies.settle(req, context.record.exitCode ?? 137);
          return { waiters: [] };
        }),
        on: {
          'exec.wait': { actions: ({ context, event }) => replies.settle(event.req, context.record.exitCode ?? 137) },
        },
      },
    },
  });
}
