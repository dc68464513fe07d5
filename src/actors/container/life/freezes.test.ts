import assert from 'node:assert/strict';
import { test } from 'node:test';
import { setImmediate as nextTurn } from 'node:timers/promises';
import { internal } from '../../../errors/engine-error.js';
import type { Logger } from '../../../ports/logger.js';
import type { TaskInfo } from '../../../ports/supervisor.js';
import { Freezes } from './freezes.js';

type Answer = TaskInfo['status'] | 'gone' | Error;

/** Questions that the test answers one by one, what containers are told, and what the log says. */
function asking() {
  const questions: { readonly id: string; readonly answer: (answer: Answer) => Promise<void> }[] = [];
  const told: string[] = [];
  const warned: string[] = [];
  const get = (id: string): Promise<TaskInfo | undefined> =>
    new Promise((resolve, reject) =>
      questions.push({
        id,
        answer: async (answer) => {
          if (answer instanceof Error) reject(answer);
          else resolve(answer === 'gone' ? undefined : ({ id, status: answer } as TaskInfo));
          await nextTurn();
        },
      }),
    );
  const freezes = new Freezes({
    tasks: { get },
    log: { warn: (_: unknown, text: string) => void warned.push(text) } as unknown as Logger,
    tell: (id, { type }) => void told.push(`${id} ${type}`),
  });
  return { freezes, questions, told, warned };
}

test('a container is told how its task is, and nothing of one that has ended or is changing', async () => {
  const { freezes, questions, told } = asking();
  for (const [id, answer] of [
    ['a', 'paused'],
    ['b', 'running'],
    ['c', 'stopped'],
    ['d', 'gone'],
    ['e', 'pausing'],
    ['f', 'unknown'],
  ] as const) {
    freezes.changed(id);
    await questions.shift()?.answer(answer);
  }
  assert.deepEqual(told, ['a task.paused', 'b task.resumed']);
});

test('there is one question at a time for a container; an event that comes meanwhile makes one more', async () => {
  const { freezes, questions, told } = asking();
  for (const id of ['a', 'a', 'a', 'b']) freezes.changed(id);
  assert.deepEqual(
    questions.map(({ id }) => id),
    ['a', 'b'],
  );
  await questions.shift()?.answer('paused');
  assert.deepEqual(
    questions.map(({ id }) => id),
    ['b', 'a'],
  );
  await questions.pop()?.answer('running');
  assert.deepEqual(told, ['a task.paused', 'a task.resumed']);
  freezes.changed('a');
  assert.equal(questions.length, 2, 'the next event is asked for again');
});

test('a question that fails is told in the log, and the next one is asked', async () => {
  const { freezes, questions, told, warned } = asking();
  freezes.changed('a');
  freezes.changed('a');
  await questions.shift()?.answer(internal('no'));
  await questions.shift()?.answer('paused');
  assert.deepEqual(told, ['a task.paused']);
  assert.deepEqual(warned, ['it is not known whether a container is paused']);
});
