import assert from 'node:assert/strict';
import { test } from 'node:test';
import { createActor, setup } from 'xstate';
import { createCollection } from './collection.js';
import { effect } from './effect.js';
import { Replies } from './replies.js';

/** A collection with one actor, whose effect never ends. */
function harness() {
  const signals: AbortSignal[] = [];
  const logic = setup({
    types: { events: {} as { readonly type: 'crash' | 'leave' | 'stay' } },
    actors: {
      work: effect<void, undefined>((_input, signal) => {
        signals.push(signal);
        return new Promise(() => undefined);
      }),
    },
    actions: {
      crash: () => {
        throw new Error('crash');
      },
    },
  }).createMachine({
    initial: 'working',
    states: {
      working: { invoke: { src: 'work' }, on: { crash: { actions: 'crash' }, leave: 'idle', stay: {} } },
      idle: {},
    },
  });
  const collection = createCollection({ kind: 'test', logic, replies: new Replies(), onCrash: () => undefined });
  const root = createActor(collection.logic);
  root.start();
  root.send({ type: 'collection.spawn', id: 'a', input: undefined });
  return { collection, root, signals };
}

test('an effect is aborted when its actor leaves the state, crashes or is stopped, and not before', async () => {
  for (const end of ['leave', 'crash', 'stop'] as const) {
    const { collection, root, signals } = harness();
    collection.tell('a', { type: 'stay' });
    assert.deepEqual(
      signals.map(({ aborted }) => aborted),
      [false],
      end,
    );
    if (end === 'stop') root.send({ type: 'collection.stop', id: 'a' });
    else collection.tell('a', { type: end });
    assert.deepEqual(
      signals.map(({ aborted }) => aborted),
      [true],
      end,
    );
    root.stop();
  }
});
