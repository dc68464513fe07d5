/**
 * The life of one container.
 *
 *   booting ──► creating ──► idle ◄────────────────────────────┐
 *      │                      │ start                          │
 *      │                      ▼                                │
 *      ├──► adopting ──► starting ──► running(active|pausing|  │
 *      │                                paused|unpausing|      │
 *      │                                stopping)              │
 *      │                      ▲           │ task.exited        │
 *      │                      │           ▼                    │
 *      └────────────────► draining ──► releasing ──► deciding ─┤
 *                             ▲                         │      │
 *                          backoff ◄────────────────────┤      │
 *                                                       ▼      │
 *                                           removing ──► dead ─┘ / gone
 *
 * Owner: the containers collection. Invariants: each command gets exactly one reply; no state is left while its effect
 * runs (except `stopping`, whose effect only waits); `rewiring` may be entered from any resting state and goes back
 * there; commands that arrive in a passing state are postponed to the next resting one, in order, and refused when that
 * takes too long. An effect that makes no progress crashes the actor: the next one begins with what it finds. So does a
 * stop, a kill or a forced removal that waits too long. The record in the context is immutable and is what readers see.
 */
import type { EngineError } from '../../errors/engine-error.js';
import type { Replies } from '../kit/replies.js';
import { containerActs } from './container.acts.js';
import { initialContext } from './container.context.js';
import type { ContainerEffects, ContainerHooks } from './container.effects.types.js';
import type { ContainerCommand } from './container.messages.js';
import { containerActors, containerSetup } from './container.setup.js';
import { stopInput } from './life/stop-input.js';

/** These handlers belong to states in which nothing else changes the record: it is settled. */
const SETTLED = {
  'container.settled': { actions: 'answerSettled' },
  'container.amend': { actions: 'amend' },
  'amend.saved': { actions: 'applyAmend' },
  'amend.failed': { actions: 'refuseAmend' },
} as const;

/** These handlers belong to states in which the container does not run and can be started. */
const STARTABLE = {
  ...SETTLED,
  'container.rewire': { target: 'rewiring', actions: 'noteStopper' },
  'container.start': { target: 'starting', actions: 'noteStarter' },
  'container.restart': { target: 'starting', actions: 'noteRestarter' },
  'container.pause': { actions: 'refuseNotRunning' },
  'container.unpause': { actions: 'refuseNotPaused' },
} as const;

/** These handlers belong to states in which the container is removed, or should have been. */
const REMOVED = {
  'container.start': { actions: 'refuseStartOfRemoved' },
  'container.restart': { actions: 'refuseStartOfRemoved' },
  'container.stop': { actions: 'refuseNotModified' },
  'container.wait': [{ guard: 'waitsForNotRunning', actions: 'answerWait' }, { actions: 'wait' }],
  'container.*': { actions: 'refuseNotRunning' },
} as const;

type RewireCommand = Extract<ContainerCommand, { type: 'container.rewire' }>;

const containerChart = containerSetup.createMachine({
  id: 'container',
  context: ({ input }) => initialContext(input),
  initial: 'booting',
  on: {
    'request.cancelled': { actions: 'forgetRequest' },
    'container.wait': { actions: 'wait' },
    'container.*': { actions: 'postpone' },
    'amend.*': { actions: 'postponeAmends' },
    'task.exited': { actions: 'noteExit' },
    'task.oom': { actions: 'noteOom' },
    'patience.over': { actions: 'refusePostponed' },
    'effect.hung': { actions: { type: 'crash', params: ({ event }) => ({ error: event.error }) } },
  },
  states: {
    booting: {
      always: [
        { guard: 'isNew', target: 'creating' },
        { guard: 'hasExit', target: 'draining' },
        { guard: 'wasRunning', target: 'adopting' },
        { guard: 'hasEnded', target: 'releasing' },
        { guard: 'wasRemoving', target: 'removing' },
        { target: 'idle' },
      ],
    },
    creating: {
      invoke: {
        src: 'create',
        input: ({ context }) => context.record,
        onDone: {
          target: 'idle',
          actions: { type: 'created', params: ({ event }) => event.output },
        },
        onError: {
          target: 'gone',
          actions: { type: 'notCreated', params: ({ event }) => event.error as EngineError },
        },
      },
    },
    adopting: {
      invoke: {
        src: 'adopt',
        input: ({ context: { record, isInPlace } }) => ({ record, isInPlace }),
        onDone: { target: 'adopted', actions: { type: 'adopted', params: ({ event }) => event.output } },
        onError: [
          { guard: 'hasExit', target: 'draining' },
          {
            guard: { type: 'isTaskGone', params: ({ event }) => event.error as EngineError },
            target: 'draining',
            actions: 'noteUnseenExit',
          },
          {
            target: 'adopted',
            actions: { type: 'blame', params: ({ event }) => event.error as EngineError },
          },
        ],
      },
    },
    /** The task goes on as the record says, also when something else of the container could not be taken over. */
    adopted: {
      always: [
        { guard: 'hasExit', target: 'draining' },
        { guard: 'isPaused', target: 'running.paused' },
        { target: 'running' },
      ],
    },
    idle: {
      entry: 'resume',
      on: {
        ...STARTABLE,
        'container.stop': { actions: 'refuseNotModified' },
        'container.shutdown': { actions: 'refuseNotModified' },
        'container.kill': { actions: 'refuseNotRunning' },
        'container.wait': [{ guard: 'waitsForNotRunning', actions: 'answerWait' }, { actions: 'wait' }],
        'container.remove': { target: 'removing', actions: 'noteRemoval' },
      },
    },
    starting: {
      entry: 'prepareStart',
      invoke: {
        src: 'start',
        input: ({ context }) => context.record,
        onDone: [
          {
            guard: 'hasExit',
            target: 'draining',
            actions: { type: 'announceStart', params: ({ event }) => event.output },
          },
          { target: 'running', actions: { type: 'announceStart', params: ({ event }) => event.output } },
        ],
        onError: {
          target: 'startFailed',
          actions: { type: 'startFailed', params: ({ event }) => event.error as EngineError },
        },
      },
    },
    startFailed: {
      always: [{ guard: 'removalWanted', target: 'removing' }, { target: 'idle' }],
    },
    running: {
      initial: 'active',
      entry: 'resume',
      on: {
        'task.exited': { target: 'draining', actions: 'noteExit' },
        'health.probed': { actions: 'noteProbe' },
        ...SETTLED,
        'container.start': { actions: 'refuseNotModified' },
        'container.kill': { actions: 'kill' },
        'container.stop': { target: '.stopping', actions: ['noteStopper', 'planStop'] },
        'container.shutdown': { target: '.stopping', actions: ['noteStopper', 'planStop'] },
        'container.restart': { target: '.stopping', actions: ['noteRestarter', 'planStop'] },
        'container.pause': { target: '.pausing', actions: 'notePauser' },
        'container.unpause': { actions: 'refuseNotPaused' },
        'container.remove': [
          { guard: 'forced', target: '.stopping', actions: ['noteRemoval', 'planStop'] },
          { actions: 'refuseStillUp' },
        ],
      },
      states: {
        active: {
          entry: 'resume',
          on: {
            'container.rewire': { target: '#rewiring', actions: 'noteStopper' },
            'task.paused': { target: 'paused', actions: 'announcePause' },
          },
        },
        pausing: {
          invoke: {
            src: 'pause',
            input: ({ context }) => context.record,
            onDone: {
              target: 'paused',
              actions: 'announcePause',
            },
            onError: {
              target: 'active',
              actions: { type: 'rejectPausers', params: ({ event }) => event.error as EngineError },
            },
          },
          on: { 'container.*': { actions: 'postpone' } },
        },
        paused: {
          entry: 'resume',
          on: {
            'container.start': { actions: 'refuseStartOfPaused' },
            'container.pause': { actions: 'refuseAlreadyPaused' },
            'container.unpause': { target: 'unpausing', actions: 'notePauser' },
            'task.resumed': { target: 'active', actions: 'noteResumed' },
            'container.rewire': { target: '#rewiring', actions: 'noteStopper' },
          },
        },
        unpausing: {
          invoke: {
            src: 'unpause',
            input: ({ context }) => context.record,
            onDone: {
              target: 'active',
              actions: 'announceUnpause',
            },
            onError: {
              target: 'paused',
              actions: { type: 'rejectPausers', params: ({ event }) => event.error as EngineError },
            },
          },
          on: { 'container.*': { actions: 'postpone' } },
        },
        stopping: {
          invoke: {
            src: 'stop',
            input: ({ context }) => context.stop ?? stopInput(context.record, {}),
            // The exit event leaves the whole `running` state; this transition is for an exit that was never
            // reported.
            onDone: {
              target: '#container.draining',
              actions: { type: 'noteUntoldExit', params: ({ event }) => event.output },
            },
            // The container outlived SIGKILL.
            onError: {
              target: 'active',
              actions: { type: 'stopFailed', params: ({ event }) => event.error as EngineError },
            },
          },
          on: {
            // Each further stop sends its own signal and may bring the end forward; the grace of the first does not
            // bind it.
            'container.stop': { target: 'stopping', reenter: true, actions: ['noteStopper', 'planStop'] },
            'container.shutdown': { target: 'stopping', reenter: true, actions: ['noteStopper', 'planStop'] },
            'container.restart': { target: 'stopping', reenter: true, actions: ['noteRestarter', 'planStop'] },
            'container.pause': { actions: 'postpone' },
            'container.unpause': { actions: 'postpone' },
            'task.resumed': { actions: 'noteResumed' },
            'container.remove': [
              // A forced removal does not wait for the grace of a stop under way.
              { guard: 'forced', target: 'stopping', reenter: true, actions: ['noteRemoval', 'planStop'] },
              { actions: 'postpone' },
            ],
          },
        },
      },
    },
    rewiring: {
      id: 'rewiring',
      invoke: {
        src: 'rewire',
        input: ({ context, event }) => ({ record: context.record, change: (event as RewireCommand).change }),
        onDone: { target: 'rewired', actions: { type: 'announceRewired', params: ({ event }) => event.output } },
        onError: {
          target: 'rewired',
          actions: { type: 'refuseRewired', params: ({ event }) => event.error as EngineError },
        },
      },
    },
    /** This leads back to the state in which the change came, unless the container has ended meanwhile. */
    rewired: {
      always: [
        { guard: 'hasExit', target: 'draining' },
        { guard: 'isPaused', target: 'running.paused' },
        { guard: 'isUp', target: 'running' },
        { guard: 'isBackingOff', target: 'backoff' },
        { target: 'idle' },
      ],
    },
    draining: {
      invoke: {
        src: 'drain',
        input: ({ context }) => context.record,
        onDone: { target: 'releasing', actions: 'settleExit' },
        onError: { target: 'releasing', actions: 'settleExit' },
      },
      on: { 'container.kill': { actions: 'refuseNotRunning' } },
    },
    releasing: {
      invoke: {
        src: 'release',
        input: ({ context: { record, told } }) => ({ record, told }),
        onDone: { target: 'deciding', actions: { type: 'noteReleased', params: ({ event }) => event.output } },
        onError: [
          // Resources of a task must not be left to the next start of the container, nor to its removal, so the
          // release is tried again.
          {
            guard: 'canReleaseAgain',
            target: 'releasing',
            reenter: true,
            actions: 'noteFailedRelease',
          },
          {
            target: 'deciding',
            actions: { type: 'blame', params: ({ event }) => event.error as EngineError },
          },
        ],
      },
      on: {
        'container.wait': [{ guard: 'waitsForThisExit', actions: 'answerWait' }, { actions: 'wait' }],
        // A container that its policy brings back is stopped by not starting it again.
        'container.kill': [{ guard: 'isBackingOff', actions: 'postpone' }, { actions: 'refuseNotRunning' }],
        'container.stop': [{ guard: 'isBackingOff', actions: 'postpone' }, { actions: 'refuseNotModified' }],
      },
    },
    deciding: {
      entry: { type: 'endStreams', params: ({ context }) => ({ id: context.record.id }) },
      always: [
        { guard: 'removalWanted', target: 'removing' },
        { guard: 'restartAsked', target: 'starting' },
        { guard: 'isBackingOff', target: 'backoff', actions: 'lengthenDelay' },
        { target: 'idle' },
      ],
    },
    /** A rewiring comes back here: the restart is then due when it was before. */
    backoff: {
      entry: 'resume',
      after: { backoff: { target: 'starting' } },
      on: {
        ...STARTABLE,
        'container.stop': { target: 'idle', actions: 'giveUpRestart' },
        'container.shutdown': { target: 'idle', actions: 'restBackoff' },
        'container.kill': [
          { guard: 'cancelsBackoff', target: 'idle', actions: 'giveUpRestart' },
          { actions: { type: 'settle', params: ({ event }) => ({ reqs: [event.req] }) } },
        ],
        'container.remove': [
          { guard: 'forced', target: 'removing', actions: 'noteRemoval' },
          { actions: 'refuseStillUp' },
        ],
      },
    },
    removing: {
      entry: ['announceRemoval', 'resume'],
      invoke: {
        src: 'remove',
        input: ({ context }) => ({
          record: context.record,
          options: context.removal?.options ?? { force: true, volumes: true },
        }),
        onDone: {
          target: 'gone',
          actions: 'removed',
        },
        onError: {
          target: 'dead',
          actions: { type: 'removalFailed', params: ({ event }) => event.error as EngineError },
        },
      },
      on: {
        ...REMOVED,
        'container.remove': { actions: 'refuseRemovalUnderWay' },
        // How the container ends is known only at the end.
        'container.settled': { actions: 'postpone' },
        'container.shutdown': { actions: 'refuseNotModified' },
      },
    },
    dead: {
      entry: 'resume',
      on: {
        ...SETTLED,
        ...REMOVED,
        'container.remove': { target: 'removing', actions: 'noteRemoval' },
      },
    },
    gone: { type: 'final' },
  },
});

/** Creates the machine of every container: the chart with the effects and acts that it names. */
export function createContainerMachine(effects: ContainerEffects, hooks: ContainerHooks, replies: Replies) {
  return containerChart.provide({
    actors: containerActors(effects),
    actions: containerActs(effects, hooks, replies),
  });
}
