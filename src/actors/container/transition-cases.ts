/**
 * The tables of transitions are made of these: every event that a container can get, and what it knows in each state.
 */
import type { StateValue } from 'xstate';
import { never } from '../../../test/support/pure-machines.js';
import { conflict, deadline, internal } from '../../errors/engine-error.js';
import { SIGKILL, SIGTERM } from '../../text/signals.js';
import { initialContext, type ContainerContext } from './container.context.js';
import { TASK_GONE } from './container.effects.types.js';
import type { AmendCommand, ContainerCommand, ContainerEvent } from './container.messages.js';
import { withState, type ContainerRecord, type ContainerStatus } from './container.record.js';
import { record, withHost } from './machine-fixture.js';
import { planStop } from './steps/stop.js';

/** The time at which every event comes. */
export const NOW = Date.parse('2026-01-01T00:00:30Z');
const STARTED = '2026-01-01T00:00:10Z';
const exit = { exitCode: 3, exitedAt: new Date('2026-01-01T00:00:20Z') };
const health = { status: 'starting', failingStreak: 0, log: [] } as const;
const healthy = { start: '2026-01-01T00:00:12Z', end: '2026-01-01T00:00:12Z', exitCode: 0, output: '' };
const probed: ContainerRecord = {
  ...record,
  config: { ...record.config, Healthcheck: { Test: ['CMD', 'true'] } },
};

/** The command that comes is 9; those that came before have lower numbers. */
const COMING = 9;
const options = {};
const refusing = {
  amend: () => {
    throw conflict('no');
  },
};
const changing = { amend: (before: ContainerRecord) => ({ ...before, name: '/other' }) };

function inStatus(status: ContainerStatus, base: ContainerRecord = probed): ContainerRecord {
  if (status === 'created') return base;
  return withState(base, { status, startedAt: STARTED, ...(status === 'running' ? { pid: 7, health } : {}) });
}

/** Returns the event that tells of the end of a state's effect. */
function ended(how: 'done' | 'error', state: string, value: object): ContainerEvent {
  const id = state === 'rewiring' ? state : `container.${state}`;
  return { type: `xstate.${how}.actor.0.${id}`, ...value } as unknown as ContainerEvent;
}

function outputOf(state: string, { record: before }: ContainerContext): unknown {
  if (state === 'running.stopping') return exit;
  return state === 'starting' ? inStatus('running', before) : before;
}

/**
 * Returns every event by the name that it has in the tables.
 * @param state the path of the state that the event meets.
 */
export function eventsFor(state: string, context: ContainerContext): Record<string, ContainerEvent> {
  const commands: Record<string, ContainerCommand> = {
    settled: { type: 'container.settled', req: COMING },
    start: { type: 'container.start', req: COMING },
    stop: { type: 'container.stop', req: COMING, options },
    shutdown: { type: 'container.shutdown', req: COMING, options },
    restart: { type: 'container.restart', req: COMING, options },
    signal: { type: 'container.kill', req: COMING, signal: SIGTERM },
    kill: { type: 'container.kill', req: COMING, signal: SIGKILL },
    pause: { type: 'container.pause', req: COMING },
    unpause: { type: 'container.unpause', req: COMING },
    wait: { type: 'container.wait', req: COMING, condition: 'not-running' },
    'wait for next': { type: 'container.wait', req: COMING, condition: 'next-exit' },
    remove: { type: 'container.remove', req: COMING, options: { force: false, volumes: false } },
    'force remove': { type: 'container.remove', req: COMING, options: { force: true, volumes: false } },
    rewire: { type: 'container.rewire', req: COMING, change: { type: 'connect', network: 'n', request: {} } },
    amend: { type: 'container.amend', req: COMING, ...changing },
    'bad amend': { type: 'container.amend', req: COMING, ...refusing },
  };
  return {
    ...commands,
    exited: { type: 'task.exited', exit },
    oom: { type: 'task.oom' },
    paused: { type: 'task.paused' },
    resumed: { type: 'task.resumed' },
    probed: { type: 'health.probed', startedAt: STARTED, result: healthy },
    'old probe': { type: 'health.probed', startedAt: 'before', result: healthy },
    saved: { type: 'amend.saved', base: context.record, record: { ...context.record, name: '/other' } },
    'saved too late': { type: 'amend.saved', base: { ...context.record }, record: context.record },
    'not saved': { type: 'amend.failed', error: internal('ENOSPC') },
    'patience over': { type: 'patience.over', req: 4 },
    hung: { type: 'effect.hung', error: deadline('hung') },
    cancelled: { type: 'request.cancelled', req: 5 },
    delay: { type: 'xstate.after.backoff.container.backoff' } as unknown as ContainerEvent,
    done: ended('done', state, { output: outputOf(state, context) }),
    failed: ended('error', state, { error: internal('broken') }),
    'task gone': ended('error', state, { error: internal('gone', { code: TASK_GONE }) }),
  };
}

export interface Case {
  readonly state: StateValue;
  readonly context: ContainerContext;
}

function idle(status: ContainerStatus, more: Partial<ContainerContext> = {}): ContainerContext {
  return { ...initialContext({ phase: 'idle', record: inStatus(status) }), ...more };
}

const amends: readonly AmendCommand[] = [
  { type: 'container.amend', req: 4, ...changing, applied: never },
  { type: 'container.amend', req: 5, ...changing, applied: never },
];
const removal = { reqs: [6], options: { force: true, volumes: false } };
const stop = planStop(idle('running'), { type: 'container.stop', req: 1, options }).change?.stop;
const postponed: readonly ContainerCommand[] = [
  { type: 'container.pause', req: 4 },
  { type: 'container.start', req: 5 },
];
const waiters = [
  { req: 5, condition: 'next-exit' },
  { req: 6, condition: 'exit' },
  { req: 7, condition: 'removed' },
] as const;
const returning = inStatus('restarting', withHost({ RestartPolicy: { Name: 'always', MaximumRetryCount: 0 } }));
const always = inStatus('running', withHost({ RestartPolicy: { Name: 'always', MaximumRetryCount: 0 } }));
const passing = inStatus('running', withHost({ AutoRemove: true }));

/** The cases by their names in the tables, which begin with the state. */
export const CASES: Record<string, Case> = {
  creating: { state: 'creating', context: { ...idle('created'), phase: 'new' } },
  'creating, with commands': { state: 'creating', context: idle('created', { postponed }) },
  adopting: { state: 'adopting', context: { ...idle('running'), phase: 'running' } },
  'adopting, paused': { state: 'adopting', context: idle('paused') },
  'adopting, ended': { state: 'adopting', context: idle('running', { exit }) },
  idle: { state: 'idle', context: idle('exited') },
  'idle, amending': { state: 'idle', context: idle('exited', { amends }) },
  starting: { state: 'starting', context: idle('created', { starters: [1], restarters: [2], waiters }) },
  'starting, ended': { state: 'starting', context: idle('created', { exit }) },
  'starting, with commands': { state: 'starting', context: idle('created', { postponed, amends }) },
  'starting, with a stop': {
    state: 'starting',
    context: idle('created', { postponed: [{ type: 'container.stop', req: 4, options }] }),
  },
  'starting, never to stay': { state: 'starting', context: { ...idle('created'), record: passing } },
  'running.active': { state: { running: 'active' }, context: idle('running', { waiters }) },
  'running.active, amending': { state: { running: 'active' }, context: idle('running', { amends }) },
  'running.pausing': { state: { running: 'pausing' }, context: idle('running', { pausers: [1] }) },
  'running.paused': { state: { running: 'paused' }, context: idle('paused') },
  'running.unpausing': { state: { running: 'unpausing' }, context: idle('paused', { pausers: [1] }) },
  'running.stopping': {
    state: { running: 'stopping' },
    context: idle('running', { stop, stoppers: [1], restarters: [2], removal }),
  },
  rewiring: { state: 'rewiring', context: idle('exited', { stoppers: [1] }) },
  'rewiring, running': { state: 'rewiring', context: idle('running', { stoppers: [1] }) },
  'rewiring, paused': { state: 'rewiring', context: idle('paused', { stoppers: [1] }) },
  'rewiring, coming back': {
    state: 'rewiring',
    context: idle('restarting', { stoppers: [1], delayMs: 400, restartsAt: NOW + 300 }),
  },
  'rewiring, ended': { state: 'rewiring', context: idle('running', { stoppers: [1], exit }) },
  draining: { state: 'draining', context: idle('running', { exit, waiters, stoppers: [1], pausers: [2] }) },
  'draining, coming back': { state: 'draining', context: { ...idle('running', { exit }), record: always } },
  'draining, restarted': {
    state: 'draining',
    context: { ...idle('running', { exit, restarters: [2] }), record: passing },
  },
  'draining, removed': { state: 'draining', context: idle('running', { exit, removal, restarters: [2] }) },
  releasing: { state: 'releasing', context: idle('exited') },
  'releasing, given up': { state: 'releasing', context: idle('exited', { releases: 5 }) },
  'releasing, coming back': {
    state: 'releasing',
    context: { ...idle('restarting', { delayMs: 400 }), record: returning },
  },
  'releasing, restarted': { state: 'releasing', context: idle('restarting', { restarters: [2] }) },
  'releasing, removed': { state: 'releasing', context: idle('exited', { removal, restarters: [2] }) },
  backoff: { state: 'backoff', context: { ...idle('restarting', { waiters }), record: returning } },
  'backoff, amending': { state: 'backoff', context: { ...idle('restarting', { amends }), record: returning } },
  removing: { state: 'removing', context: idle('removing', { removal, waiters }) },
  'removing, with commands': { state: 'removing', context: idle('removing', { removal, postponed, amends }) },
  dead: { state: 'dead', context: idle('dead') },
  'dead, amending': { state: 'dead', context: idle('dead', { amends }) },
};
