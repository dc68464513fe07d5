/**
 * Every event in every state of an exec: the next state, what its context is then, and the names of the actions;
 * nothing is executed. Events never meet `booting`: a test at the end shows where it leads.
 */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { initialTransition } from 'xstate';
import { EngineError, internal } from '../../errors/engine-error.js';
import { never, NoReplies, Transitions } from '../../../test/support/pure-machines.js';
import { created, size } from './exec-fixture.js';
import { createExecMachine, newExec, type ExecContext } from './exec.machine.js';
import type { ExecEvent } from './exec.messages.js';
import type { ExecRecord } from './exec.record.js';

const machine = createExecMachine(
  { start: never, drain: never, resize: never },
  { publish: never, emit: never },
  new NoReplies(),
);

const transitions = new Transitions(machine);

const running: ExecRecord = { ...created, running: true, pid: 7 };
const ended: ExecRecord = { ...created, exitCode: 3, pid: 7 };

const start = { type: 'exec.start', req: 1, tty: true, size } as const;
const resize = { type: 'exec.resize', req: 2, size } as const;
const CONTEXTS: Record<string, Partial<ExecContext>> = {
  closing: { record: ended, waiters: [3] },
  created: { waiters: [3] },
  starting: { start, waiters: [3], resizes: [resize] },
  running: { record: running, waiters: [3] },
  draining: { record: ended, exitCode: 3, waiters: [3] },
  exited: { record: ended },
};

const over = (how: 'done' | 'error', state: string, value: object): ExecEvent =>
  ({ type: `xstate.${how}.actor.0.exec.${state}`, ...value }) as unknown as ExecEvent;
const EVENTS: Record<string, ExecEvent> = {
  start: { ...start, req: 11 },
  wait: { type: 'exec.wait', req: 12 },
  resize: { ...resize, req: 13 },
  exited: { type: 'exec.exited', exit: { exitCode: 5, exitedAt: new Date(0) } },
  'waiter leaves': { type: 'request.cancelled', req: 3 },
  'other leaves': { type: 'request.cancelled', req: 99 },
  hung: { type: 'effect.hung', error: internal('hung') },
  'closing done': over('done', 'closing', { output: undefined }),
  'closing failed': over('error', 'closing', { error: internal('no') }),
  'start done': over('done', 'starting', { output: { pid: 7 } }),
  'start failed': over('error', 'starting', { error: internal('no') }),
  'command missing': over('error', 'starting', {
    error: new EngineError('invalid', '', { details: { exitCode: 127 } }),
  }),
  'drain done': over('done', 'draining', { output: undefined }),
  'drain failed': over('error', 'draining', { error: internal('no') }),
};

const STOP = 'xstate.stopChild';
const SPAWN = 'xstate.spawnChild';
const REFUSALS = ['publish', 'failStart', 'refusePostponed', 'settleWaiters'] as const;

type Row = readonly [state: string, changed: Partial<ExecContext>, ...actions: string[]];

/** These rows hold in every state for which TABLE does not say otherwise. */
const anywhere = (state: string): Record<string, Row> => ({
  start: [state, {}, 'refuseStart'],
  wait: [state, { waiters: [...(CONTEXTS[state]?.waiters ?? []), 12] }],
  resize: [state, {}, 'refuseResize'],
  exited: [state, { exitCode: 5 }],
  'waiter leaves': [state, { waiters: [] }],
  hung: [state, {}, 'crash'],
});
/** An event that is neither here nor above changes nothing and leads to no action. */
const TABLE: Record<string, Row> = {
  'closing, closing done': ['exited', { waiters: [] }, STOP, 'settleWaiters'],
  'closing, closing failed': ['exited', { waiters: [] }, STOP, 'settleWaiters'],
  'created, start': ['starting', { start: { ...start, req: 11 } }, SPAWN],
  'starting, resize': ['starting', { resizes: [resize, { ...resize, req: 13 }] }],
  'starting, start done': [
    'running',
    { record: running, resizes: [] },
    STOP,
    'publish',
    'emitStart',
    'settleStart',
    'resizePostponed',
  ],
  'starting, start failed': [
    'exited',
    { record: { ...created, exitCode: 126 }, waiters: [], resizes: [] },
    STOP,
    ...REFUSALS,
  ],
  'starting, command missing': [
    'exited',
    { record: { ...created, exitCode: 127 }, waiters: [], resizes: [] },
    STOP,
    ...REFUSALS,
  ],
  'running, resize': ['running', {}, 'resize'],
  'running, exited': [
    'draining',
    { record: { ...running, running: false, exitCode: 5 }, exitCode: 5 },
    'publish',
    'emitDie',
    SPAWN,
  ],
  'draining, drain done': ['exited', { waiters: [] }, STOP, 'settleWaiters'],
  'draining, drain failed': ['exited', { waiters: [] }, STOP, 'settleWaiters'],
  'exited, wait': ['exited', {}, 'settleWait'],
};

for (const [state, known] of Object.entries(CONTEXTS)) {
  for (const [name, event] of Object.entries(EVENTS)) {
    test(`${state}, ${name}`, () => {
      const context: ExecContext = { ...newExec(created), ...known };
      const [next, actions] = transitions.next(state, context, event);
      const [value, changed, ...types] = TABLE[`${state}, ${name}`] ?? anywhere(state)[name] ?? [state, {}];
      assert.deepEqual([next.value, ...actions.map(({ type }) => type)], [value, ...types]);
      assert.deepEqual(next.context, { ...context, ...changed });
    });
  }
}

test('every event met every state in which an exec can stay', () => transitions.assertComplete());

const UNSEEN = { ...newExec(created), start, exitCode: 5 };
test('an exit that beats the reply of the start ends the run as soon as it began', () => {
  const [next, actions] = transitions.next('starting', UNSEEN, EVENTS['start done'] ?? assert.fail());
  assert.deepEqual([next.value, next.context.record], ['draining', { ...running, running: false, exitCode: 5 }]);
  assert.deepEqual(
    actions.map(({ type }) => type),
    [STOP, 'publish', 'emitStart', 'settleStart', 'resizePostponed', 'publish', 'emitDie', SPAWN],
  );
});

for (const [record, state, types] of [
  [created, 'created', []],
  [running, 'running', []],
  [ended, 'closing', [SPAWN]],
] as const) {
  test(`an exec whose record is ${state} begins there`, () => {
    const [first, actions] = initialTransition(machine, record);
    assert.equal(first.value, state);
    assert.deepEqual(
      actions.map(({ type }) => type),
      types,
    );
  });
}
