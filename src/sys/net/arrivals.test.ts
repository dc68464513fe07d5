import assert from 'node:assert/strict';
import { writeSync } from 'node:fs';
import { test } from 'node:test';
import { closeFd, endConnection, peekSocket } from '../files/fd.js';
import { watchArrivals } from './arrivals.js';
import { socketPair } from './socket-pair.js';

const turns = (): Promise<void> => new Promise((resolve) => setTimeout(resolve, 30));

async function until(condition: () => boolean): Promise<void> {
  for (const end = Date.now() + 30_000; !condition() && Date.now() < end;) await turns();
}

test('each arrival is told once, though nobody takes the bytes, and so is the end', async () => {
  const [ours, theirs] = socketPair();
  const told: boolean[] = [];
  writeSync(theirs, 'a');
  const watch = watchArrivals(ours, (hasEnded) => void told.push(hasEnded));
  await until(() => told.length > 0);
  assert.deepEqual(told, [false], 'what is there already is told too');
  await turns();
  assert.equal(told.length, 1);
  writeSync(theirs, 'b');
  await until(() => told.length > 1);
  assert.deepEqual(told, [false, false]);
  assert.equal(peekSocket(ours, Buffer.alloc(10)), 2);
  endConnection(theirs);
  await until(() => told.at(-1) === true);
  assert.deepEqual([told.slice(0, 2), told.at(-1)], [[false, false], true]);
  watch.close();
  watch.close();
  closeFd(ours);
});

test('a watch that is closed is not told, also when another closes it in the same turn', async () => {
  const pairs = [socketPair(), socketPair()];
  let told = 0;
  const watches = pairs.map(([ours]) =>
    watchArrivals(ours, () => {
      told++;
      for (const watch of watches) watch.close();
    }),
  );
  for (const [, theirs] of pairs) writeSync(theirs, 'a');
  await until(() => told > 0);
  await turns();
  assert.equal(told, 1);
  for (const fd of pairs.flat()) closeFd(fd);
});
