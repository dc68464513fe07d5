/** Every event in every state of a managed plugin: the next state and the names of the actions; nothing is executed. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { type AnyEventObject, initialTransition } from 'xstate';
import { conflict, internal } from '../../errors/engine-error.js';
import type { PluginRecord } from '../../ports/managed-plugin.js';
import { never, NoReplies, Transitions } from '../../../test/support/pure-machines.js';
import { createPluginMachine, type PluginContext, waitMs } from './plugin.machine.js';
import type { PluginCommand } from './plugin.messages.js';

/** Commands that are refused in the case at hand. */
let refused = false;
const effects = { start: never, restore: never, stop: never, save: never, change: never };
const hooks = { publish: never, refusal: () => (refused ? conflict('no') : undefined), failed: never };
const machine = createPluginMachine(effects, hooks, new NoReplies());
const transitions = new Transitions(machine);

const record = { name: 'p', enabled: true } as PluginRecord;
const context: PluginContext = {
  record,
  job: undefined,
  postponed: undefined,
  hasExited: false,
  failures: 0,
};
const command = (name: string): AnyEventObject => ({ type: `plugin.${name}`, req: {} });
const changed = { ...record, enabled: false };

/** Events by the words of the table, in the state that gets them. */
function eventOf(word: string, state: string): AnyEventObject {
  switch (word) {
    case 'exited':
      return { type: 'plugin.exited', exit: { exitCode: 1 } };
    case 'hung':
      return { type: 'effect.hung', error: internal('no progress') };
    case 'done':
      return { type: `xstate.done.actor.0.plugin.${state}`, output: changed };
    case 'failed':
      return { type: `xstate.error.actor.0.plugin.${state}`, error: internal('no') };
    case 'stable':
    case 'beforeRestart':
      return { type: `xstate.after.${word}.plugin.${state}` };
    default:
      return command(word);
  }
}

/**
 * The next state, the names of the actions, and what the context then has: a plugin that is switched off, the command
 * that is carried out, one that waits, failures in a row, an exit that was heard.
 */
function outcome(state: string, word: string, changes: Partial<PluginContext>): string {
  const [next, actions] = transitions.next(state, { ...context, ...changes }, eventOf(word, state) as never);
  const { record: now, job, postponed, failures, hasExited } = next.context;
  const facts = [
    ...(now.enabled ? [] : ['off']),
    ...(job ? [`job ${job.type.slice(7)}`] : []),
    ...(postponed ? [`later ${postponed.type.slice(7)}`] : []),
    ...(failures > 0 ? [`failures ${failures}`] : []),
    ...(hasExited ? ['heard'] : []),
  ];
  const names = actions.map(({ type }) => type).filter((type) => !type.startsWith('xstate.'));
  return [next.value, ...names, ...facts].join(' ');
}

const words = (names: string): string[] => names.split(' ');
const COMMANDS = words('enable disable set upgrade remove rest');
/** The same for several events. */
const same = (names: readonly string[], expected: (word: string) => string): Record<string, string> =>
  Object.fromEntries(names.map((word) => [word, expected(word)]));

/** A state that waits for the end of one command gets no other one: commands come one after the other. */
const alone = (state: string): Record<string, string> => ({
  ...same(COMMANDS, () => state),
  exited: `${state} heard`,
  hung: `${state} crash`,
});
const launching = (state: string): Record<string, string> => ({
  ...same(COMMANDS, (word) => `${state} later ${word}`),
  exited: `${state} heard`,
  hung: `${state} crash`,
  done: 'running publishRunning',
  failed: 'waiting tellDeath publishStopped failures 1',
});
const enabled = (state: string): Record<string, string> => ({
  ...same(words('enable set upgrade'), () => state),
  ...same(words('disable remove rest'), (word) => `stopping job ${word}`),
  hung: `${state} crash`,
});

const TABLE: Readonly<Record<string, Readonly<Record<string, string>>>> = {
  restoring: launching('restoring'),
  restarting: launching('restarting'),
  disabled: {
    enable: 'starting job enable',
    disable: 'disabled',
    ...same(words('set upgrade remove'), (word) => `changing job ${word}`),
    rest: 'disabled settleUnchanged',
    exited: 'disabled heard',
    hung: 'disabled crash',
  },
  starting: {
    ...alone('starting'),
    done: 'running publishRunning settle publishRunning',
    failed: 'disabled fail publishStopped',
  },
  running: {
    ...enabled('running'),
    exited: 'waiting tellDeath publishStopped failures 1',
    stable: 'running',
  },
  waiting: { ...enabled('waiting'), exited: 'waiting heard', beforeRestart: 'restarting' },
  stopping: {
    ...alone('stopping'),
    done: 'disabled publishStopped settle publishStopped off',
    failed: 'disabled fail publishStopped off',
  },
  changing: {
    ...alone('changing'),
    done: 'disabled publishStopped settle publishStopped off',
    failed: 'disabled fail publishStopped',
  },
  resting: alone('resting'),
};

test('every event in every state', () => {
  refused = false;
  for (const [state, row] of Object.entries(TABLE))
    for (const [word, expected] of Object.entries(row))
      assert.equal(outcome(state, word, {}), expected, `${state} ${word}`);
  transitions.assertComplete();
});

test('what is refused changes nothing', () => {
  refused = true;
  for (const state of ['running', 'waiting'])
    for (const word of words('enable disable set upgrade remove'))
      assert.equal(outcome(state, word, {}), `${state} refuse`);
  for (const word of words('disable remove')) assert.equal(outcome('disabled', word, {}), 'disabled refuse');
  refused = false;
});

test('the end of a command depends on the command', () => {
  const job = (name: string): Partial<PluginContext> => ({ job: command(name) as unknown as PluginCommand });
  assert.equal(outcome('stopping', 'done', job('rest')), 'resting settle');
  assert.equal(outcome('stopping', 'done', job('remove')), 'changing publishStopped off job remove');
  assert.equal(outcome('stopping', 'done', job('disable')), 'disabled publishStopped settle publishStopped off');
  assert.equal(outcome('changing', 'done', job('remove')), 'removed settle');
});

test('an exit or a command that came while the process was started counts when it runs', () => {
  assert.equal(
    outcome('restarting', 'done', { hasExited: true, failures: 2 }),
    'waiting publishRunning tellDeath publishStopped failures 3 heard',
  );
  const postponed = command('disable') as unknown as PluginCommand;
  assert.equal(outcome('restoring', 'done', { postponed }), 'stopping publishRunning job disable');
  assert.equal(
    outcome('restoring', 'failed', { postponed }),
    'stopping tellDeath publishStopped job disable failures 1',
  );
  assert.equal(outcome('running', 'stable', { failures: 3 }), 'running');
});

test('waits grow up to a minute', () => {
  const waits = [1, 2, 3, 9, 10, 100].map((failures) => waitMs({ ...context, failures }));
  assert.deepEqual(waits, [200, 400, 800, 51_200, 60_000, 60_000]);
});

test('a plugin that is enabled is restored at the start of the daemon', () => {
  const begun = (input: PluginRecord): unknown => initialTransition(machine, input)[0].value;
  assert.deepEqual([begun(record), begun(changed)], ['restoring', 'disabled']);
});
