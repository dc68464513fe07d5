import assert from 'node:assert/strict';
import { setImmediate as nextTurn } from 'node:timers/promises';
import { test } from 'node:test';
import { inLanes, mapInLanes } from './in-lanes.js';

test('everything is done once, and few things at a time', async () => {
  const done: number[] = [];
  let [running, most] = [0, 0];
  await inLanes(
    Array.from({ length: 500 }, (_, index) => index),
    async (index) => {
      most = Math.max(most, (running += 1));
      await nextTurn();
      running -= 1;
      done.push(index);
    },
  );
  assert.equal(new Set(done).size, 500);
  assert.equal(done.length, 500);
  assert.ok(most > 1 && most <= 32, String(most));
});

test('after a failure nothing more is begun', async () => {
  let begun = 0;
  const failing = inLanes(Array.from({ length: 500 }), async () => {
    begun += 1;
    await nextTurn();
    throw new Error('broken');
  });
  await assert.rejects(failing, /broken/);
  await nextTurn();
  assert.ok(begun <= 32, String(begun));
});

test('what becomes of each is in its place, and few are done at a time', async () => {
  let [running, most] = [0, 0];
  const items = Array.from({ length: 500 }, (_, index) => index);
  const halves = await mapInLanes(items, async (index) => {
    most = Math.max(most, (running += 1));
    for (let turns = index % 3; turns > 0; turns--) await nextTurn();
    running -= 1;
    return index / 2;
  });
  assert.deepEqual(
    halves,
    items.map((index) => index / 2),
  );
  assert.ok(most <= 32, String(most));
  assert.deepEqual(await mapInLanes([], () => Promise.reject(new Error('nothing'))), []);
});
