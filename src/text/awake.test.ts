import assert from 'node:assert/strict';
import { test } from 'node:test';
import { setTimeout as sleep } from 'node:timers/promises';
import { awake } from './awake.js';

/** Keeps the event loop from its next turn. */
function stall(ms: number): void {
  const until = performance.now() + ms;
  while (performance.now() < until);
}

test('a stall of the event loop counts as one step', async () => {
  let isOver = false;
  const limit = awake(200, new AbortController().signal).then(() => (isOver = true));
  stall(400);
  await sleep(20);
  assert.equal(isOver, false);
  await limit;
});

test('it ends when nobody needs the limit any more', async () => {
  const over = new AbortController();
  const limit = awake(3_600_000, over.signal);
  over.abort();
  await limit;
});
