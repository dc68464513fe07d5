/** The record of a container whose task is taken over: the machine goes on from there. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { TaskInfo, TaskStatus } from '../../../ports/supervisor.js';
import { withState } from '../container.record.js';
import { record } from '../machine-fixture.js';
import { adoptContainer } from './adopt.js';
import type { EffectTools } from './tools.js';

const ROWS = [
  ['running', 'running', 'running'],
  ['paused', 'running', 'running'],
  ['running', 'paused', 'paused'],
  ['paused', 'pausing', 'paused'],
  ['running', 'unknown', 'running'],
  ['paused', 'unknown', 'paused'],
] as const;

for (const [before, task, after] of ROWS) {
  test(`a container that was ${before} with a task that is ${task} is ${after}`, async () => {
    const found = withState(record, { status: before });
    const { state } = await adoptContainer(toolsWith(task), { record: found, isInPlace: true });
    assert.deepEqual([state.status, state.pid], [after, 7]);
  });
}

test('a task that has stopped is not taken over', async () => {
  await assert.rejects(adoptContainer(toolsWith('stopped'), { record, isInPlace: true }), { code: 'TASK_GONE' });
});

/** An effect that only looks needs nothing else. */
function toolsWith(status: TaskStatus): EffectTools {
  const task: TaskInfo = {
    id: record.id,
    pid: 7,
    status,
    stdio: { stdin: '', stdout: '', stderr: '', terminal: false },
  };
  return { deps: { tasks: { get: async () => task } } } as unknown as EffectTools;
}
