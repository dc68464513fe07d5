import assert from 'node:assert/strict';
import { test } from 'node:test';
import { setImmediate as turn } from 'node:timers/promises';
import type { ContainerUsage } from '../../ports/stats.js';
import { AllUsages } from './all-usages.js';

test('not all containers are read at a time, each once for all who ask together', async () => {
  const ids = Array.from({ length: 120 }, (_, index) => `c${index}`);
  const reads: string[] = [];
  let [underWay, most] = [0, 0];
  const usages = new AllUsages(
    () => ids,
    async (id) => {
      reads.push(id);
      most = Math.max(most, ++underWay);
      await turn();
      underWay--;
      return { usage: id === 'c7' ? undefined : ({ readAt: id } as ContainerUsage) };
    },
  );
  const [first, second] = await Promise.all([usages.all(), usages.all()]);
  assert.equal(first, second);
  assert.deepEqual(reads, ids);
  assert.equal(most, 50);
  assert.deepEqual([first.size, first.get('c9')?.readAt, first.has('c7')], [119, 'c9', false]);
  assert.equal(await usages.all(), first, 'a moment later it is still fresh');
});

test('a failed reading is not kept', async (t) => {
  t.mock.timers.enable({ apis: ['setTimeout'] });
  let fails = true;
  const usages = new AllUsages(
    () => ['one'],
    async () => {
      if (fails) throw new Error('broken');
      return { usage: undefined };
    },
  );
  await assert.rejects(usages.all(), /broken/);
  fails = false;
  await turn();
  t.mock.timers.tick(1000);
  assert.equal((await usages.all()).size, 0);
});
