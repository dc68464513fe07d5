/**
 * The vocabulary of the container machine: steps, acts, guards and effects by name. `container.machine.ts` says in
 * which state which of them happens. Steps compute; acts and effects are given by `containerActs` and
 * `containerActors`, and the machine that has none of these can be asked what it would do.
 */
import { enqueueActions, setup } from 'xstate';
import { type EngineError, notModified } from '../../errors/engine-error.js';
import type { RequestId } from '../kit/commands.js';
import { limitedEffect } from '../kit/effect.js';
import { silenceLimitMs } from '../kit/faults.js';
import type { ContainerActs } from './container.acts.js';
import type { ContainerContext, ContainerInput } from './container.context.js';
import {
  TASK_GONE,
  type ContainerEffects,
  type ReleaseInput,
  type RemoveInput,
  type StopInput,
} from './container.effects.types.js';
import type { ContainerEvent } from './container.messages.js';
import type { ContainerRecord } from './container.record.js';
import {
  alreadyPaused,
  notPaused,
  notRunning,
  pausedNoStart,
  removalUnderWay,
  removedNoStart,
  stillUp,
} from './life/refusals.js';
import { cancelsRestart } from './life/stop-input.js';
import type { NetworkChange } from './network/network-change.js';
import { amend, applyAmend, refuseAmend } from './steps/amend.js';
import { adopted, blame, created, notCreated } from './steps/begin.js';
import {
  lengthenDelay,
  noteExit,
  noteFailedRelease,
  noteReleased,
  noteUnseenExit,
  noteUntoldExit,
  restartsInMs,
  settleExit,
} from './steps/exit.js';
import { noteOom, noteProbe } from './steps/facts.js';
import { announcePause, announceUnpause, notePauser, noteResumed, rejectPausers } from './steps/pause.js';
import { postpone, postponeAmends, refusePostponed, resume } from './steps/postpone.js';
import { announceRemoval, noteRemoval, removalFailed, removed } from './steps/removal.js';
import { announceRewired, refuseRewired } from './steps/rewire.js';
import { announceStart, noteStarter, prepareStart, startFailed } from './steps/start.js';
import { type Act, NOTHING, reject, settle, type Step } from './steps/step.js';
import { giveUpRestart, kill, noteRestarter, noteStopper, planStop, restBackoff, stopFailed } from './steps/stop.js';
import { answerWait, forgetRequest, wait } from './steps/waits.js';

/** The release of a container's resources is tried at most this often. */
const MOST_RELEASES = 5;

const notGiven = (): never => {
  throw new Error('this machine only computes: it has no effects');
};

/** Makes the action of a step: first the context changes, then the acts are done in their order. */
function step<Params = undefined>(compute: (context: ContainerContext, params: Params, event: ContainerEvent) => Step) {
  return enqueueActions<ContainerContext, ContainerEvent, Params, ContainerEvent, never, Act, never, never, never>(
    ({ context, event, enqueue }, params) => {
      const { change, acts = [] } = compute(context, params, event);
      if (change) enqueue.assign(change);
      for (const each of acts) enqueue(each);
    },
  );
}

/** Makes the action of a step that only this event leads to. */
function on<T extends ContainerEvent['type']>(
  type: T,
  compute: (context: ContainerContext, event: Extract<ContainerEvent, { type: T }>) => Step,
) {
  const isMeant = (event: ContainerEvent): event is Extract<ContainerEvent, { type: T }> => event.type === type;
  return step((context, _params, event) => (isMeant(event) ? compute(context, event) : NOTHING));
}

/** Makes the action of a step that any command may lead to. */
function asked(compute: (context: ContainerContext, req: RequestId) => Step) {
  return step((context, _params, event) => ('req' in event ? compute(context, event.req) : NOTHING));
}

function refuse(reason: (record: ContainerRecord) => EngineError) {
  return asked(({ record }, req) => ({ acts: reject([req], reason(record)) }));
}

/** Returns the effects as the machine invokes them. */
export function containerActors(effects: ContainerEffects) {
  return {
    create: limitedEffect((record: ContainerRecord, signal, pace) => effects.create(record, signal, pace)),
    start: limitedEffect((record: ContainerRecord, signal, pace) => effects.start(record, signal, pace)),
    adopt: limitedEffect((input: { record: ContainerRecord; isInPlace: boolean }) => effects.adopt(input)),
    stop: limitedEffect((input: StopInput, signal, pace) => effects.stop(input, signal, pace)),
    pause: limitedEffect((record: ContainerRecord, signal) => effects.pause(record, signal)),
    unpause: limitedEffect((record: ContainerRecord) => effects.unpause(record)),
    drain: limitedEffect((record: ContainerRecord) => effects.drain(record)),
    release: limitedEffect((input: ReleaseInput) => effects.release(input)),
    rewire: limitedEffect((input: { record: ContainerRecord; change: NetworkChange }) => effects.rewire(input)),
    remove: limitedEffect((input: RemoveInput, _signal, pace) => effects.remove(input, pace)),
  };
}

const NO_EFFECTS: ContainerEffects = {
  create: notGiven,
  start: notGiven,
  adopt: notGiven,
  stop: notGiven,
  pause: notGiven,
  unpause: notGiven,
  drain: notGiven,
  release: notGiven,
  rewire: notGiven,
  remove: notGiven,
  save: notGiven,
};

const NO_ACTS: ContainerActs = {
  publish: notGiven,
  withdraw: notGiven,
  emit: notGiven,
  settle: notGiven,
  reject: notGiven,
  saveLater: notGiven,
  settleWhenSaved: notGiven,
  writeAmend: notGiven,
  confirmAmend: notGiven,
  sendSignal: notGiven,
  partStreams: notGiven,
  endStreams: notGiven,
  forget: notGiven,
  crash: notGiven,
};

export const containerSetup = setup({
  types: {
    context: {} as ContainerContext,
    events: {} as ContainerEvent,
    input: {} as ContainerInput,
  },
  actors: containerActors(NO_EFFECTS),
  actions: {
    ...NO_ACTS,

    postpone,
    postponeAmends,
    resume,
    refusePostponed,
    wait: on('container.wait', wait),
    answerWait: on('container.wait', answerWait),
    forgetRequest: on('request.cancelled', forgetRequest),
    answerSettled: asked(({ record }, req) => ({ acts: settle([req], record) })),
    created: step(created),
    notCreated: step(notCreated),
    adopted: step(adopted),
    blame: step(blame),
    noteStarter: asked(noteStarter),
    prepareStart: step(prepareStart),
    announceStart: step(announceStart),
    startFailed: step(startFailed),
    noteOom: step(noteOom),
    noteProbe: on('health.probed', noteProbe),
    notePauser: asked(notePauser),
    announcePause: step(announcePause),
    announceUnpause: step(announceUnpause),
    rejectPausers: step(rejectPausers),
    noteResumed: step(noteResumed),
    noteStopper: asked(noteStopper),
    noteRestarter: asked(noteRestarter),
    planStop: step((context, _params, event) => planStop(context, event)),
    stopFailed: step(stopFailed),
    kill: on('container.kill', kill),
    restBackoff: asked(restBackoff),
    giveUpRestart: asked(giveUpRestart),
    noteExit: on('task.exited', noteExit),
    noteUntoldExit: step(noteUntoldExit),
    noteUnseenExit: step(noteUnseenExit),
    settleExit: step(settleExit),
    noteReleased: step(noteReleased),
    noteFailedRelease: step(noteFailedRelease),
    lengthenDelay: step(lengthenDelay),
    announceRewired: step(announceRewired),
    refuseRewired: step(refuseRewired),
    amend: on('container.amend', amend),
    applyAmend: on('amend.saved', applyAmend),
    refuseAmend: on('amend.failed', refuseAmend),
    noteRemoval: on('container.remove', noteRemoval),
    announceRemoval: step(announceRemoval),
    removed: step(removed),
    removalFailed: step(removalFailed),
    refuseNotRunning: refuse(notRunning),
    refuseNotPaused: refuse(notPaused),
    refuseAlreadyPaused: refuse(alreadyPaused),
    refuseStartOfPaused: refuse(pausedNoStart),
    refuseStillUp: refuse(stillUp),
    refuseRemovalUnderWay: refuse(removalUnderWay),
    refuseNotModified: refuse(() => notModified('')),
    refuseStartOfRemoved: refuse(removedNoStart),
  },
  guards: {
    isNew: ({ context }) => context.phase === 'new',
    wasRunning: ({ context }) => context.phase === 'running',
    hasEnded: ({ context }) => context.phase === 'ended',
    wasRemoving: ({ context }) => context.phase === 'removing',
    isTaskGone: (_, error: EngineError) => error.code === TASK_GONE,
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
  delays: { backoff: ({ context }) => restartsInMs(context), patience: () => silenceLimitMs() },
});
