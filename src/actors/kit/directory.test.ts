import assert from 'node:assert/strict';
import { test } from 'node:test';
import { createActor, setup } from 'xstate';
import { isEngineError, notFound } from '../../errors/engine-error.js';
import type { Command } from './commands.js';
import { ActorDirectory } from './directory.js';
import { ACTOR_GONE, Replies } from './replies.js';

type Ask = Command<'ask'>;
type Work = Command<'work', string>;
type Event = Ask | Work | { readonly type: 'end' } | { readonly type: 'crash' };

/** Makes a directory of actors that answer `work` when `finish` is called, and never answer `ask`. */
function harness({ isRevived }: { readonly isRevived: boolean }) {
  const replies = new Replies();
  let begun = 0;
  let finish = (_result: string): void => undefined;
  const logic = setup({ types: { events: {} as Event, input: {} as string } }).createMachine({
    entry: () => void (begun += 1),
    initial: 'lives',
    states: {
      lives: {
        on: {
          work: {
            actions: ({ event: { req } }) => {
              replies.leaveToWork(req);
              finish = (result) => replies.settle(req, result);
            },
          },
          end: 'over',
          crash: {
            actions: () => {
              throw new Error('crash');
            },
          },
        },
      },
      over: { type: 'final' },
    },
  });
  const directory = new ActorDirectory<typeof logic, Ask | Work>({
    kind: 'test',
    logic,
    replies,
    missing: (id) => notFound(`No such thing: ${id}`),
    ...(isRevived && { revive: () => 'again' }),
    onCrash: () => undefined,
  });
  const root = createActor(directory.collection.logic);
  root.subscribe({ error: () => undefined });
  directory.connect((event) => root.send(event));
  root.start();
  directory.spawn('a', 'first');
  return { directory, root, begun: () => begun, finish: (result: string) => finish(result) };
}

test('one that ends, or is stopped, before it answers is missing; one that crashes is not', async () => {
  for (const end of ['end', 'stop', 'crash'] as const) {
    const { directory, root } = harness({ isRevived: true });
    const asked = directory.ask('a', 'ask', {}, { begin: () => undefined });
    if (end === 'stop') directory.stop('a');
    else directory.tell('a', { type: end });
    await assert.rejects(asked, (error) =>
      end === 'crash'
        ? isEngineError(error, 'unavailable') && error.code === ACTOR_GONE
        : isEngineError(error, 'not-found') && error.message === 'No such thing: a',
    );
    root.stop();
  }
});

test('where nobody is revived, another one is asked in the place of one that has ended', async () => {
  const { directory, root, begun, finish } = harness({ isRevived: false });
  const asked = directory.ask('a', 'ask', {}, { begin: () => 'second' });
  directory.tell('a', { type: 'end' });
  while (begun() < 2) await new Promise(setImmediate);
  const worked = directory.ask('a', 'work', {});
  finish('done');
  assert.equal(await worked, 'done');
  directory.tell('a', { type: 'end' });
  await assert.rejects(asked, /has ended/);
  root.stop();
});

test('work that has begun answers itself, also when its actor ends or crashes first', async () => {
  for (const end of ['end', 'crash'] as const) {
    const { directory, root, finish } = harness({ isRevived: true });
    const asked = directory.ask('a', 'work', {});
    directory.tell('a', { type: end });
    finish('done');
    assert.equal(await asked, 'done');
    root.stop();
  }
});
