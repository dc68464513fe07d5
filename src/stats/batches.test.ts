import assert from 'node:assert/strict';
import { test } from 'node:test';
import { isEngineError } from '../errors/engine-error.js';
import type { ContainerUsage, StatsTarget } from '../ports/stats.js';
import { batchedStats } from './batches.js';

const target = (id: string): StatsTarget => ({ id, pid: 1, usesHostNetwork: true });
const usageOf = ({ id }: StatsTarget): ContainerUsage | undefined =>
  id === 'gone' ? undefined : ({ readAt: id } as ContainerUsage);

test('readings that are asked for during another one are made together, and each gets its own answer', async () => {
  const batches: string[][] = [];
  const reader = batchedStats(async (targets) => {
    batches.push(targets.map(({ id }) => id));
    await Promise.resolve();
    return targets.map(usageOf);
  });
  const first = reader.read(target('a'));
  const others = ['b', 'gone', 'c'].map((id) => reader.read(target(id)));
  assert.equal((await first).readAt, 'a');
  const outcomes = await Promise.allSettled(others);
  assert.deepEqual(
    outcomes.map((outcome) => outcome.status === 'fulfilled' && outcome.value.readAt),
    ['b', false, 'c'],
  );
  assert.ok(outcomes[1]?.status === 'rejected' && isEngineError(outcomes[1].reason, 'not-found'));
  assert.deepEqual(batches, [['a'], ['b', 'gone', 'c']]);
});

test('a batch that fails is told to all of it, and the next one is read', async () => {
  let fails = true;
  const reader = batchedStats(async (targets) => {
    await Promise.resolve();
    if (fails) throw new Error('no thread');
    return targets.map(usageOf);
  });
  await assert.rejects(reader.read(target('a')), /no thread/);
  fails = false;
  assert.equal((await reader.read(target('b'))).readAt, 'b');
});
