import assert from 'node:assert/strict';
import { test } from 'node:test';
import { createActor, fromTransition } from 'xstate';
import { createCollection } from './collection.js';
import { Replies } from './replies.js';

type Fact = { readonly type: 'crash' } | { readonly type: 'fact'; readonly value: number };

const turn = (): Promise<void> => new Promise((resolve) => setImmediate(resolve));

/** Makes a collection of actors that collect facts; `revive` is told how often it was called. */
function harness(revive: (attempt: number) => Promise<string[] | undefined>) {
  const seen: string[] = [];
  let attempts = 0;
  const logic = fromTransition(
    (names: string[], event: Fact) => {
      if (event.type === 'crash') throw new Error('crash');
      seen.push([...names, event.value].join(' '));
      return names;
    },
    ({ input }: { input: string[] }) => input,
  );
  const collection = createCollection({
    kind: 'test',
    logic,
    replies: new Replies(),
    revive: () => revive(++attempts),
    onCrash: () => undefined,
  });
  const root = createActor(collection.logic);
  root.subscribe({ error: () => undefined });
  root.start();
  root.send({ type: 'collection.spawn', id: 'a', input: ['first'] });
  return { collection, root, seen, attempts: () => attempts };
}

test('what a child is told while it is down is kept for it, in order', async () => {
  let found = (_names: string[]): void => undefined;
  const { collection, seen, root } = harness(() => new Promise((resolve) => (found = resolve)));
  collection.tell('a', { type: 'fact', value: 1 });
  collection.tell('a', { type: 'crash' });
  assert.deepEqual([collection.isDown('a'), collection.tell('a', { type: 'fact', value: 2 })], [true, true]);
  const awake = collection.awake('a');
  assert.equal(collection.tell('a', { type: 'fact', value: 3 }), true);
  found(['second']);
  await awake;
  collection.tell('a', { type: 'fact', value: 4 });
  assert.deepEqual(seen, ['first 1', 'second 2', 'second 3', 'second 4']);
  assert.equal(collection.tell('nobody', { type: 'fact', value: 5 }), false);
  root.stop();
});

test('one that cannot be begun is tried again, and whoever asks for it is told why', async () => {
  const { collection, seen, root, attempts } = harness(async (attempt) => {
    if (attempt === 1) throw new Error('the supervisor does not answer');
    return ['second'];
  });
  collection.tell('a', { type: 'crash' });
  collection.tell('a', { type: 'fact', value: 1 });
  await assert.rejects(collection.awake('a'), /does not answer/);
  await collection.awake('a');
  assert.deepEqual([attempts(), seen, collection.isDown('a')], [2, ['second 1'], false]);
  root.stop();
});

test('one whose budget of crashes is spent is begun by the next fact', async () => {
  const { collection, seen, root } = harness(async () => ['again']);
  for (let crashes = 0; crashes < 6; crashes++) {
    collection.tell('a', { type: 'crash' });
    if (crashes < 5) await collection.awake('a');
  }
  await turn();
  assert.equal(collection.children.has('a'), false);
  collection.tell('a', { type: 'fact', value: 1 });
  while (seen.length === 0) await turn();
  assert.deepEqual(seen, ['again 1']);
  root.stop();
});

test('one of which nothing is left stays gone', async () => {
  const { collection, root } = harness(async () => undefined);
  collection.tell('a', { type: 'crash' });
  await collection.awake('a');
  assert.deepEqual([collection.isDown('a'), collection.children.has('a')], [false, false]);
  root.stop();
});
