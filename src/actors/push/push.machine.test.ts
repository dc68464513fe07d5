import assert from 'node:assert/strict';
import { test } from 'node:test';
import { createActor } from 'xstate';
import { cancelled, internal } from '../../errors/engine-error.js';
import { parseReference } from '../../images/reference.js';
import { Replies } from '../kit/replies.js';
import { ProgressBoard } from '../pull/progress-board.js';
import { createPushMachine } from './push.machine.js';
import type { PushCommand, PushInput } from './push.messages.js';

const turn = (): Promise<void> => new Promise((resolve) => setImmediate(resolve));

function startPush() {
  const replies = new Replies();
  const calls: { resolve(): void; reject(error: unknown): void }[] = [];
  const log: string[] = [];
  const board = new ProgressBoard();
  const machine = createPushMachine(
    { push: () => new Promise<void>((resolve, reject) => calls.push({ resolve, reject })) },
    {
      cancel: () => void log.push('cancel'),
      board: () => board,
      close: (_, error) => void log.push(error === undefined ? 'close' : `close ${(error as Error).message}`),
    },
    replies,
  );
  const input: PushInput = { id: 'p', reference: parseReference('a'), credentials: undefined };
  const actor = createActor(machine, { input }).start();
  actor.subscribe({ error: () => undefined, complete: () => replies.actorEnded(actor) });
  return {
    actor,
    calls,
    log,
    join: () => replies.ask<PushCommand>(actor, { type: 'push.join' }),
    state: () => JSON.stringify(actor.getSnapshot().value),
  };
}

test('everybody is admitted at once and shares one push', async () => {
  const push = startPush();
  const [one, two] = [await push.join(), await push.join()];
  assert.equal(one.board, two.board);
  assert.equal(push.calls.length, 1);
  push.actor.send({ type: 'push.left', interest: one.interest });
  assert.deepEqual(push.log, [], 'somebody is left');
  push.calls[0]?.resolve();
  await turn();
  assert.deepEqual([push.state(), push.log], ['"done"', ['close']]);
});

test('the last one who leaves cancels; one who comes meanwhile gets a push of his own', async () => {
  const push = startPush();
  const { interest } = await push.join();
  push.actor.send({ type: 'push.left', interest });
  assert.deepEqual([push.state(), push.log], ['{"pushing":"cancelling"}', ['cancel']]);
  const late = push.join();
  push.calls[0]?.reject(cancelled('not wanted'));
  await turn();
  await late;
  assert.deepEqual([push.calls.length, push.state(), push.log], [2, '{"pushing":"wanted"}', ['cancel', 'close']]);
  push.calls[1]?.reject(internal('broken'));
  await turn();
  assert.deepEqual([push.state(), push.log.at(-1)], ['"failed"', 'close broken']);
});

test('one who comes while a cancelled push comes to its end after all sees that end', async () => {
  const push = startPush();
  const { interest } = await push.join();
  push.actor.send({ type: 'push.left', interest });
  const late = push.join();
  push.calls[0]?.resolve();
  await turn();
  await late;
  assert.deepEqual([push.state(), push.log], ['"done"', ['cancel', 'close']]);
});
