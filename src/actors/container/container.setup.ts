/**
 * The vocabulary of the container machine: context, actions, guards and effects by name. `container.machine.ts` says
 * in which state which of them happens.
 */
import { assign, enqueueActions, setup } from 'xstate';
import { deadline, type EngineError, isEngineError, notModified, unavailable } from '../../errors/engine-error.js';
import { limitedEffect } from '../kit/effect.js';
import type { RequestId } from '../kit/commands.js';
import type { Replies } from '../kit/replies.js';
import type { ExitStatus } from '../../ports/supervisor.js';
import { silenceLimitMs } from '../kit/faults.js';
import { inTime, NO_PROGRESS } from '../kit/pace.js';
import {
  TASK_GONE,
  type ContainerEffects,
  type ContainerHooks,
  type RemoveInput,
  type StopInput,
} from './container.effects.types.js';
import type { NetworkChange } from './network/network-change.js';
import {
  isForceful,
  type AmendCommand,
  type AmendOutcome,
  type ContainerCommand,
  type ContainerEvent,
  type RemoveOptions,
  type StopOptions,
  type WaitCondition,
} from './container.messages.js';
import { withEndedHealth, withProbeResult, withStartingHealth } from './life/health.js';
import { withState, type ContainerRecord } from './container.record.js';
import {
  alreadyPaused,
  notPaused,
  notRunning,
  pausedNoStart,
  removalUnderWay,
  removedNoStart,
  stillUp,
} from './life/refusals.js';
import { UNSEEN_EXIT_CODE } from './life/unseen-exit.js';
import { wantsRestart } from './life/restart-policy.js';
import { SIGKILL } from '../../text/signals.js';
import { cancelsRestart, stopInput } from './life/stop-input.js';

/** Where an incarnation of the actor begins. */
export type ContainerInput =
  | { readonly phase: 'new' | 'idle' | 'ended' | 'removing'; readonly record: ContainerRecord }
  /** `isInPlace` is true when an earlier actor in the same daemon had started the task or taken it over. */
  | { readonly phase: 'running'; readonly record: ContainerRecord; readonly isInPlace?: boolean }
  | { readonly phase: 'exited'; readonly record: ContainerRecord; readonly exit: ExitStatus };

interface Waiter {
  readonly req: RequestId;
  readonly condition: WaitCondition | 'exit';
}

export interface ContainerContext {
  readonly record: ContainerRecord;
  readonly phase: ContainerInput['phase'];
  readonly isInPlace: boolean;
  readonly waiters: readonly Waiter[];
  /** These requests wait for the start that is under way. */
  readonly starters: readonly RequestId[];
  /** These requests wait for the stop that is under way; those of a restart are here until its start. */
  readonly stoppers: readonly RequestId[];
  /** These requests wait for the pause or unpause that is under way. */
  readonly pausers: readonly RequestId[];
  /** These requests asked for a restart: after the exit they become starters. */
  readonly restarters: readonly RequestId[];
  readonly stop: StopInput | undefined;
  readonly removal: { readonly reqs: readonly RequestId[]; readonly options: RemoveOptions } | undefined;
  readonly postponed: readonly ContainerCommand[];
  /** These are the requested changes of the record in their order; the first is being written to disk. */
  readonly amends: readonly AmendCommand[];
  /** An exit that was reported, not yet settled. It can beat the reply of a start. */
  readonly exit: ExitStatus | undefined;
  /** This counts how often the release of this run has failed. */
  readonly releases: number;
  readonly delayMs: number;
  readonly ranMs: number;
  /** The daemon is going down: no restart follows. */
  readonly leaving: boolean;
}

/** XState gives every action these. */
interface ActionInput {
  readonly context: ContainerContext;
  readonly event: ContainerEvent;
}

/** If the release of a container's resources fails, it is tried so many times. */
const MOST_RELEASES = 5;
/** Commands that one actor keeps for later; more are refused. */
const POSTPONED_LIMIT = 1000;

export function containerSetup(effects: ContainerEffects, hooks: ContainerHooks, replies: Replies) {
  const publish = (record: ContainerRecord): ContainerRecord => {
    hooks.publish(record.id, record);
    return record;
  };
  const settleAll = (reqs: readonly RequestId[], value?: unknown): void =>
    reqs.forEach((req) => replies.settle(req, value));
  const rejectAll = (reqs: readonly RequestId[], error: unknown): void =>
    reqs.forEach((req) => replies.reject(req, error));
  const fire = (
    waiters: readonly Waiter[],
    conditions: readonly Waiter['condition'][],
    record: ContainerRecord,
  ): Waiter[] =>
    waiters.filter(({ req, condition }) => {
      if (!conditions.includes(condition)) return true;
      replies.settle(req, condition === 'exit' ? undefined : waitResult(record));
      return false;
    });

  const answerWhenSaved = (record: ContainerRecord, req: RequestId, value?: unknown): void => {
    inTime('save', effects.save(record)).then(
      () => replies.settle(req, value),
      (error: unknown) => replies.reject(req, error),
    );
  };

  /** Begins to write the first change that can be made, and refuses those before it. Returns the remaining changes. */
  const writeFirst = (
    amends: readonly AmendCommand[],
    base: ContainerRecord,
    self: { send(event: AmendOutcome): void },
  ): readonly AmendCommand[] => {
    const [first, ...others] = amends;
    if (!first) return amends;
    let record: ContainerRecord;
    try {
      record = first.amend(base);
    } catch (error) {
      replies.reject(first.req, error);
      return writeFirst(others, base, self);
    }
    inTime('save', effects.save(record)).then(
      () => self.send({ type: 'amend.saved', base, record }),
      (error: unknown) => self.send({ type: 'amend.failed', error }),
    );
    return amends;
  };

  const refuseOverload = ({ context, event }: ActionInput): void => {
    if ('req' in event)
      replies.reject(
        event.req,
        unavailable(`too many commands wait for container ${context.record.id}`, { code: 'OVERLOADED' }),
      );
  };

  const refuseBusy = ({ context, event }: ActionInput): void => {
    if ('req' in event) replies.reject(event.req, busy(context.record));
  };

  const refuseFirstAmend = ({ context, event }: ActionInput): void => {
    const [first] = context.amends;
    if (event.type === 'amend.failed' && first) replies.reject(first.req, event.error);
  };

  const giveUp = ({ context }: ActionInput): void => {
    throw busy(context.record);
  };

  const machine = setup({
    types: {
      context: {} as ContainerContext,
      events: {} as ContainerEvent,
      input: {} as ContainerInput,
    },
    actors: {
      create: limitedEffect((record: ContainerRecord, signal, pace) => effects.create(record, signal, pace)),
      start: limitedEffect((record: ContainerRecord, signal, pace) => effects.start(record, signal, pace)),
      adopt: limitedEffect((input: { record: ContainerRecord; isInPlace: boolean }) => effects.adopt(input)),
      stop: limitedEffect((input: StopInput, signal, pace) => effects.stop(input, signal, pace)),
      pause: limitedEffect((record: ContainerRecord, signal) => effects.pause(record, signal)),
      unpause: limitedEffect((record: ContainerRecord) => effects.unpause(record)),
      drain: limitedEffect((record: ContainerRecord) => effects.drain(record)),
      release: limitedEffect((record: ContainerRecord) => effects.release(record)),
      rewire: limitedEffect((input: { record: ContainerRecord; change: NetworkChange }) => effects.rewire(input)),
      remove: limitedEffect((input: RemoveInput, _signal, pace) => effects.remove(input, pace)),
    },
    actions: {
      postpone: enqueueActions(({ context, event, enqueue }) => {
        const command = event as ContainerCommand;
        if (context.postponed.length >= POSTPONED_LIMIT) return enqueue(refuseOverload);
        enqueue.assign({ postponed: [...context.postponed, command] });
        enqueue.raise({ type: 'patience.over', req: command.req }, { delay: 'patience', id: patienceId(command) });
      }),
      /** In a resting state: take up what was postponed. */
      resume: enqueueActions(({ context, enqueue }) => {
        if (context.postponed.length === 0) return;
        for (const command of context.postponed) {
          enqueue.cancel(patienceId(command));
          enqueue.raise(command);
        }
        enqueue.assign({ postponed: [] });
      }),
      /** A command that was postponed for too long is refused. */
      refusePostponed: enqueueActions(({ context, event, enqueue }) => {
        if (event.type !== 'patience.over') return;
        const late = context.postponed.find(({ req }) => req === event.req);
        if (!late) return;
        // This command has to end what hangs: the effect is given up, and the next actor finds out how the container is.
        if (isForceful(late)) return enqueue(giveUp);
        enqueue.assign({ postponed: context.postponed.filter(({ req }) => req !== event.req) });
        enqueue(refuseBusy);
      }),
      crash: ({ event }) => {
        if (event.type === 'effect.hung') throw event.error;
      },
      wait: assign(({ context, event }) => {
        if (event.type !== 'container.wait') return {};
        return { waiters: [...context.waiters, { req: event.req, condition: event.condition }] };
      }),
      forgetRequest: assign(({ context, event }) => {
        if (event.type !== 'request.cancelled') return {};
        // Only waits end with their client: a stop or a removal that was asked for goes on.
        return { waiters: context.waiters.filter(({ req }) => req !== event.req) };
      }),
      noteExit: assign(({ context, event }) => {
        if (event.type !== 'task.exited') return {};
        return {
          exit: event.exit,
          ranMs: Math.max(0, event.exit.exitedAt.getTime() - Date.parse(context.record.state.startedAt)),
        };
      }),
      /** The exit happened while no daemon or actor listened, so nothing is known about it. */
      noteUnseenExit: assign({ exit: () => ({ exitCode: UNSEEN_EXIT_CODE, exitedAt: new Date() }) }),
      noteOom: assign(({ context }) => {
        hooks.emit('oom', context.record);
        return { record: publish(withState(context.record, { oomKilled: true })) };
      }),
      noteResumed: assign(({ context }) => {
        if (context.record.state.status !== 'paused') return {};
        const record = publish(withState(context.record, { status: 'running' }));
        hooks.saveLater(record);
        hooks.emit('unpause', record);
        return { record };
      }),
      noteProbe: assign(({ context, event }) => {
        if (event.type !== 'health.probed' || event.startedAt !== context.record.state.startedAt) return {};
        const before = context.record.state.health?.status;
        const record = publish(withProbeResult(context.record, event.result));
        const status = record.state.health?.status;
        if (status === undefined || status === before) return { record };
        // The log of probes alone is not worth a write to the disk.
        hooks.saveLater(record);
        hooks.emit(`health_status: ${status}`, record);
        return { record };
      }),
      noteStarter: assign(({ context, event }) =>
        'req' in event ? { starters: [...context.starters, event.req] } : {},
      ),
      noteStopper: assign(({ context, event }) =>
        'req' in event ? { stoppers: [...context.stoppers, event.req] } : {},
      ),
      notePauser: assign(({ context, event }) => ('req' in event ? { pausers: [...context.pausers, event.req] } : {})),
      rejectPausers: assign(({ context, event }) => {
        rejectAll(context.pausers, (event as unknown as { error: unknown }).error);
        return { pausers: [] };
      }),
      noteRestarter: assign(({ context, event }) =>
        'req' in event ? { restarters: [...context.restarters, event.req] } : {},
      ),
      noteRemoval: assign(({ context, event }) => {
        if (event.type !== 'container.remove') return {};
        return { removal: { reqs: [...(context.removal?.reqs ?? []), event.req], options: event.options } };
      }),
      planStop: assign(({ context, event }) => {
        const options: StopOptions =
          'options' in event && event.type !== 'container.remove'
            ? event.options
            : { signal: SIGKILL, timeoutSeconds: 0 };
        const planned = stopInput(context.record, options);
        // A stop under way may end sooner by this one, but not later.
        const stop = { ...planned, killAtMs: Math.min(planned.killAtMs, context.stop?.killAtMs ?? Infinity) };
        if (event.type === 'container.shutdown') return { stop, leaving: true };
        const record = { ...context.record, manuallyStopped: true };
        // The stop is answered when this is on disk: see the effect `drain`.
        hooks.saveLater(record);
        return { stop, record };
      }),
      /** Signals without a change of state; SIGKILL is answered when the exit is settled. */
      kill: assign(({ context, event, self }) => {
        if (event.type !== 'container.kill') return {};
        const { req, signal } = event;
        const waitsForExit = signal === SIGKILL;
        const staysDown = cancelsRestart(context.record, signal) && !context.record.manuallyStopped;
        const record = staysDown ? { ...context.record, manuallyStopped: true } : context.record;
        inTime('kill', Promise.all([hooks.kill(record, signal), staysDown ? effects.save(record) : undefined])).then(
          () => waitsForExit || replies.settle(req, undefined),
          (error: unknown) => {
            self.send({ type: 'request.cancelled', req });
            replies.reject(req, killError(context.record, error));
          },
        );
        return waitsForExit
          ? { record, waiters: [...context.waiters, { req, condition: 'exit' as const }] }
          : { record };
      }),
      amend: assign(({ context, event, self }) => {
        if (event.type !== 'container.amend') return {};
        const amends = [...context.amends, event];
        return { amends: amends.length === 1 ? writeFirst(amends, context.record, self) : amends };
      }),
      /** Readers see a change when it is on disk. If the record has changed meanwhile, the change is made again. */
      applyAmend: assign(({ context, event, self }) => {
        const [first, ...others] = context.amends;
        if (event.type !== 'amend.saved' || !first) return {};
        if (event.base !== context.record) return { amends: writeFirst(context.amends, context.record, self) };
        first.applied?.(event.record);
        const record = publish(event.record);
        replies.settle(first.req, record);
        return { record, amends: writeFirst(others, record, self) };
      }),
      refuseAmend: assign(({ context, event, self }) => {
        const [first, ...others] = context.amends;
        if (event.type !== 'amend.failed' || !first) return {};
        replies.reject(first.req, event.error);
        return { amends: writeFirst(others, context.record, self) };
      }),
      /** The effect of a passing state makes a record of its own, so changes wait and are made to that record later. */
      postponeAmends: enqueueActions(({ context, event, enqueue }) => {
        const [first, ...others] = context.amends;
        if (event.type === 'amend.failed' && first) enqueue(refuseFirstAmend);
        const left = event.type === 'amend.failed' ? others : context.amends;
        for (const { req } of left)
          enqueue.raise({ type: 'patience.over', req }, { delay: 'patience', id: patienceId({ req }) });
        enqueue.assign({ amends: [], postponed: [...left, ...context.postponed] });
      }),
      answerSettled: ({ context, event }) => {
        if ('req' in event) replies.settle(event.req, context.record);
      },
      refuseNotRunning: ({ context, event }) => {
        if ('req' in event) replies.reject(event.req, notRunning(context.record));
      },
      refuseNotPaused: ({ context, event }) => {
        if ('req' in event) replies.reject(event.req, notPaused(context.record));
      },
      refuseAlreadyPaused: ({ context, event }) => {
        if ('req' in event) replies.reject(event.req, alreadyPaused(context.record));
      },
      refuseStartOfPaused: ({ event }) => {
        if ('req' in event) replies.reject(event.req, pausedNoStart());
      },
      refuseStillUp: ({ context, event }) => {
        if ('req' in event) replies.reject(event.req, stillUp(context.record));
      },
      refuseRemovalUnderWay: ({ context, event }) => {
        if ('req' in event) replies.reject(event.req, removalUnderWay(context.record));
      },
      refuseNotModified: ({ event }) => {
        if ('req' in event) replies.reject(event.req, notModified(''));
      },
      answerWait: ({ context, event }) => {
        if (event.type === 'container.wait') replies.settle(event.req, waitResult(context.record));
      },
      announceStart: assign(({ context, event }) => {
        const record = publish(withStartingHealth((event as unknown as { output: ContainerRecord }).output));
        hooks.emit('start', record);
        if (context.restarters.length > 0) hooks.emit('restart', record);
        settleAll([...context.starters, ...context.restarters]);
        return { record, starters: [], restarters: [] };
      }),
      /** Events during the effect (such as an OOM) are not lost, because the current record is the base. */
      announceRewired: assign(({ context, event }) => {
        const { networks, ports } = (event as unknown as { output: ContainerRecord }).output;
        const record = publish({ ...context.record, networks, ports });
        settleAll(context.stoppers, record);
        return { record, stoppers: [] };
      }),
      refuseRewired: assign(({ context, event }) => {
        rejectAll(context.stoppers, (event as unknown as { error: unknown }).error);
        return { stoppers: [] };
      }),
      restBackoff: assign(({ context, event }) => {
        const record = publish(withState(context.record, { status: 'exited' }));
        if ('req' in event) answerWhenSaved(record, event.req);
        return { record };
      }),
      giveUpRestart: assign(({ context, event }) => {
        const record = publish(withState({ ...context.record, manuallyStopped: true }, { status: 'exited' }));
        hooks.emit('stop', record);
        if ('req' in event) answerWhenSaved(record, event.req);
        return { record, waiters: fire(context.waiters, ['not-running', 'next-exit', 'exit'], record) };
      }),
      /** The exit is known and all output is out: tell everybody. */
      settleExit: assign(({ context }) => {
        const exit = context.exit ?? { exitCode: 137, exitedAt: new Date() };
        const ended = withState(withEndedHealth(context.record), {
          status: 'exited',
          pid: 0,
          exitCode: exit.exitCode,
          finishedAt: exit.exitedAt.toISOString(),
        });
        // A container that its policy brings back is never seen as exited: a polling client would think it ended.
        const record = publish(comesBack(context, ended) ? withRestart(ended) : ended);
        hooks.exited(record.id);
        hooks.emit('die', record, {
          exitCode: String(exit.exitCode),
          execDuration: String(Math.floor(context.ranMs / 1000)),
        });
        // A forced removal stops it, too, but is no stop to those who watch.
        if (context.stoppers.length + context.restarters.length > 0) hooks.emit('stop', record);
        settleAll(context.stoppers);
        rejectAll(context.pausers, notRunning(record));
        return {
          record,
          exit: undefined,
          releases: 0,
          stop: undefined,
          stoppers: [],
          pausers: [],
          waiters: fire(context.waiters, ['not-running', 'next-exit', 'exit'], record),
        };
      }),
      refuseRestarters: assign(({ context }) => {
        rejectAll(context.restarters, removedNoStart());
        return { restarters: [] };
      }),
      refuseStartOfRemoved: ({ event }) => {
        if ('req' in event) replies.reject(event.req, removedNoStart());
      },
    },
    guards: {
      isNew: ({ context }) => context.phase === 'new',
      wasRunning: ({ context }) => context.phase === 'running',
      hasEnded: ({ context }) => context.phase === 'ended',
      wasRemoving: ({ context }) => context.phase === 'removing',
      isTaskGone: ({ event }) =>
        isEngineError((event as unknown as { error: unknown }).error) &&
        (event as unknown as { error: EngineError }).error.code === TASK_GONE,
      hasExit: ({ context }) => context.exit !== undefined,
      isUp: ({ context }) => context.record.state.status === 'running',
      isBackingOff: ({ context }) => context.record.state.status === 'restarting',
      isPaused: ({ context }) => context.record.state.status === 'paused',
      waitsForThisExit: ({ context, event }) =>
        event.type === 'container.wait' &&
        event.condition === 'not-running' &&
        context.record.state.status !== 'restarting',
      waitsForNotRunning: ({ event }) => event.type === 'container.wait' && event.condition === 'not-running',
      canReleaseAgain: ({ context }) => context.releases < MOST_RELEASES,
      forced: ({ event }) => event.type === 'container.remove' && event.options.force,
      removalWanted: ({ context }) =>
        context.removal !== undefined || (context.record.hostConfig.AutoRemove && context.restarters.length === 0),
      restartAsked: ({ context }) => context.restarters.length > 0 && !context.leaving,
      cancelsBackoff: ({ context, event }) =>
        event.type === 'container.kill' && cancelsRestart(context.record, event.signal),
    },
    delays: { backoff: ({ context }) => context.delayMs, patience: () => silenceLimitMs() },
  });
  return { machine, publish, settleAll, rejectAll, fire };
}

/** Whether the restart policy brings a container back after this end, and no request makes it the last one. */
function comesBack({ removal, restarters, leaving }: ContainerContext, ended: ContainerRecord): boolean {
  const isLast = removal !== undefined || ended.hostConfig.AutoRemove || restarters.length > 0 || leaving;
  return !isLast && wantsRestart(ended);
}

function withRestart(ended: ContainerRecord): ContainerRecord {
  return { ...withState(ended, { status: 'restarting' }), restartCount: ended.restartCount + 1 };
}

export function initialContext(input: ContainerInput): ContainerContext {
  const { record, phase } = input;
  const exit = phase === 'exited' ? input.exit : undefined;
  return {
    record,
    phase,
    isInPlace: phase === 'running' && input.isInPlace === true,
    waiters: [],
    starters: [],
    stoppers: [],
    pausers: [],
    restarters: [],
    stop: undefined,
    removal:
      phase === 'removing' ? { reqs: [], options: { force: true, volumes: record.hostConfig.AutoRemove } } : undefined,
    postponed: [],
    amends: [],
    exit,
    releases: 0,
    delayMs: 0,
    leaving: false,
    ranMs: exit ? Math.max(0, exit.exitedAt.getTime() - Date.parse(record.state.startedAt)) : 0,
  };
}

export function waitResult(record: ContainerRecord): { exitCode: number; error?: string } {
  return record.state.error === ''
    ? { exitCode: record.state.exitCode }
    : { exitCode: record.state.exitCode, error: record.state.error };
}

/** The timer of a postponed command has this name. */
function patienceId({ req }: { readonly req: RequestId }): string {
  return `patience.${req}`;
}

/** A command is refused with this error when it has waited too long for an earlier one. */
function busy({ id }: ContainerRecord): EngineError {
  return deadline(`container ${id} has been busy for ${Math.round(silenceLimitMs() / 1000)} seconds; try again later`, {
    code: NO_PROGRESS,
  });
}

function killError(record: ContainerRecord, error: unknown): unknown {
  return isEngineError(error, 'conflict') || isEngineError(error, 'not-found') ? notRunning(record) : error;
}
