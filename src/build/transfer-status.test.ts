import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { BuildStatus } from '../ports/build.js';
import { duringTransfer } from './transfer-status.js';

test('a transfer is told of at its begin and its end, and not of each of its pieces', async () => {
  const told: BuildStatus[] = [];
  const result = await duringTransfer(
    { status: (status) => told.push(status) },
    'v',
    'transferring x:',
    async (bytes) => {
      for (let total = 1; total <= 10_000; total++) bytes(total);
      return 'done';
    },
  );
  assert.equal(result, 'done');
  assert.equal(told[0]?.current, 1);
  assert.deepEqual([told.at(-1)?.current, told.at(-1)?.completed !== undefined], [10_000, true]);
  assert.ok(told.length < 100, `${told.length} messages`);
  assert.ok(told.every(({ id, vertex, name }) => `${vertex} ${id} ${name}` === 'v transferring x: transferring'));
});

test('what has come without being counted is not told of', async () => {
  const told: BuildStatus[] = [];
  await duringTransfer({ status: (status) => told.push(status) }, 'v', 'x', async () => undefined);
  assert.deepEqual(told, []);
});
