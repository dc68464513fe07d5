/**
 * Every event in every state of the daemon: the next state and the names of the actions; nothing is executed. A daemon
 * that has ended gets no events.
 */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { fromCallback, initialTransition } from 'xstate';
import { never, Transitions } from '../../../test/support/pure-machines.js';
import { internal } from '../../errors/engine-error.js';
import { createEngineMachine, type EngineEvent } from './engine.machine.js';

const machine = createEngineMachine(
  {
    boot: never,
    interruptBoot: never,
    recover: never,
    open: never,
    drain: never,
    onServing: never,
    onFailed: never,
  },
  { containers: fromCallback(never) },
);
const transitions = new Transitions(machine);

const EFFECTS = ['booting', 'recovering', 'opening', 'draining', 'failing'];
const STATES = [...EFFECTS, 'serving'];
const ended = (how: 'done' | 'error', state: string, value: object): EngineEvent =>
  ({ type: `xstate.${how}.actor.0.engine.${state}`, ...value }) as unknown as EngineEvent;
const EVENTS: Record<string, EngineEvent> = {
  stop: { type: 'engine.stop' },
  ...Object.fromEntries(
    EFFECTS.flatMap((state) => [
      [`${state} done`, ended('done', state, { output: undefined })],
      [`${state} failed`, ended('error', state, { error: internal('no') })],
    ]),
  ),
};

const STOP = 'xstate.stopChild';
const SPAWN = 'xstate.spawnChild';
/** An event in neither table changes nothing and leads to no action. These rows hold while no stop is asked for. */
const TABLE: Record<string, readonly string[]> = {
  'booting, stop': ['booting', 'interruptBoot'],
  'booting, booting done': ['recovering', STOP, SPAWN],
  'booting, booting failed': ['failing', STOP, 'announceFailed', SPAWN],
  'recovering, recovering done': ['opening', STOP, SPAWN],
  'recovering, recovering failed': ['failing', STOP, 'announceFailed', SPAWN],
  'opening, opening done': ['serving', STOP, 'announceServing'],
  'opening, opening failed': ['failing', STOP, 'announceFailed', SPAWN],
  'serving, stop': ['draining', SPAWN],
  'draining, draining done': ['stopped', STOP],
  'draining, draining failed': ['stopped', STOP, 'announceFailed'],
  'failing, failing done': ['failed', STOP],
  'failing, failing failed': ['failed', STOP],
};
/** These rows hold instead when a stop is asked for: what is under way finishes first. */
const STOPPING: typeof TABLE = {
  'booting, booting done': ['draining', STOP, SPAWN],
  'booting, booting failed': ['draining', STOP, SPAWN],
  'recovering, recovering done': ['draining', STOP, SPAWN],
  'recovering, recovering failed': ['draining', STOP, SPAWN],
  'opening, opening done': ['draining', STOP, SPAWN],
  'opening, opening failed': ['draining', STOP, SPAWN],
};
/** A stop is noted in these states. In the others it is under way already, or has its effect at once. */
const NOTES_STOP = new Set(['booting', 'recovering', 'opening']);

for (const stopAsked of [false, true]) {
  for (const state of STATES) {
    for (const [event, sent] of Object.entries(EVENTS)) {
      test(`${state}${stopAsked ? ' when a stop was asked for' : ''}, ${event}`, () => {
        const [next, actions] = transitions.next(state, { stopAsked }, sent);
        const row = `${state}, ${event}`;
        assert.deepEqual(
          [next.value, ...actions.map(({ type }) => type)],
          (stopAsked ? STOPPING[row] : undefined) ?? TABLE[row] ?? [state],
        );
        assert.equal(next.context.stopAsked, stopAsked || (event === 'stop' && NOTES_STOP.has(state)));
      });
    }
  }
}

test('every event met every state in which the daemon can stay', () => transitions.assertComplete());

test('a daemon begins with its collections and by booting', () => {
  const [first, actions] = initialTransition(machine);
  assert.equal(first.value, 'booting');
  assert.deepEqual(
    actions.map(({ type }) => type),
    [SPAWN, SPAWN],
  );
});
