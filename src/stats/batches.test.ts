import assert from 'node:assert/strict';
import { test } from 'node:test';
import { isEngineError } from '../errors/engine-error.js';
import type { ContainerUsage, StatsTarget } from '../ports/stats.js';
import { batchedStats } from './batches.js';

const target = (id: string): StatsTarget => ({ id, pid: 1, usesHostNetwork: true });
const usageOf = ({ id }: StatsTarget): ContainerUsage | undefined =>
  id === 'gone' ? undefined : ({ readAt: id } as ContainerUsage);

test('readings that are asked for during others are made together, and each gets its own answer', async () => {
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
  assert.deepEqual(batches, [['a'], ['b'], ['gone', 'c']]);
});

test('the next batch is ready before the replies of the one before are made', async () => {
  const ends: (() => void)[] = [];
  const reader = batchedStats(async (targets) => {
    await new Promise<void>((resolve) => ends.push(resolve));
    return targets.map(usageOf);
  });
  let replies = 0;
  for (let i = 0; i < 100; i++) void reader.read(target(`${i}`)).then(() => replies++);
  const seen: number[][] = [];
  for (let i = 0; i < ends.length; i++) {
    seen.push([ends.length - i, replies]);
    ends[i]?.();
    await new Promise((resolve) => setImmediate(resolve));
  }
  // Two alone, and the others in parts.
  assert.deepEqual(seen, [
    [2, 0],
    [2, 1],
    [2, 2],
    [2, 22],
    [2, 42],
    [2, 62],
    [1, 82],
  ]);
  assert.equal(replies, 100);
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
