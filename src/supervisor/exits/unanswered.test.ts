import assert from 'node:assert/strict';
import test from 'node:test';
import { setTimeout as delay } from 'node:timers/promises';
import { create } from '@bufbuild/protobuf';
import { unavailable } from '../../errors/engine-error.js';
import { silentLog } from '../../../test/support/silent-log.js';
import { ProcessSchema, Status, type Process } from '../proto/gen/task_types_pb.js';
import { ExitWatch } from './exit-watch.js';
import { Unanswered } from './unanswered.js';

const PAUSE_MS = 1;
const SHIMS = 30;

type Answer = Process | undefined | Error;

/** A process whose question waits for its answer. */
interface Question {
  readonly id: string;
  answer(answer: Answer): void;
}

const found = (id: string, status: Status): Process => create(ProcessSchema, { id, status });

/** Asks for awaited init processes. The test answers the questions. */
function harness() {
  const exits = new ExitWatch();
  const questions: Question[] = [];
  const told: string[] = [];
  const unanswered = new Unanswered({
    logger: silentLog,
    lookup: {
      find: ({ id }) =>
        new Promise((resolve, reject) =>
          questions.push({ id, answer: (answer) => (answer instanceof Error ? reject(answer) : resolve(answer)) }),
        ),
    },
    exits,
    ended: ({ id }, process) => {
      told.push(`${id} ended${process === undefined ? ', and is gone' : ''}`);
      exits.isNews({ type: 'exit', id, execId: '', pid: 1, exit: { exitCode: 0, exitedAt: new Date(0) } });
    },
    alive: ({ id }) => void told.push(`${id} lives`),
    pauseMs: PAUSE_MS,
  });
  const add = (id: string): void => {
    exits.add({ id, execId: '' });
    unanswered.add({ id, execId: '' });
  };
  const question = async (): Promise<Question> => {
    for (;;) {
      const next = questions.shift();
      if (next !== undefined) return next;
      await delay(PAUSE_MS);
    }
  };
  return { unanswered, exits, questions, told, add, question };
}

test('whoever does not answer is asked again, until it is known how it is', async () => {
  const { told, add, question } = harness();
  add('a');
  for (const answer of [found('a', Status.UNKNOWN), unavailable('away'), found('a', Status.UNKNOWN)])
    (await question()).answer(answer);
  (await question()).answer(found('a', Status.STOPPED));
  for (const [id, answer] of [
    ['b', found('b', Status.RUNNING)],
    ['c', undefined],
  ] as const) {
    add(id);
    const asked = await question();
    assert.equal(asked.id, id);
    asked.answer(answer);
  }
  while (told.length < 3) await delay(PAUSE_MS);
  assert.deepEqual(told, ['a ended', 'b lives', 'c ended, and is gone']);
});

test('an exit that others tell, and a task that is gone, are asked for no more', async () => {
  const { unanswered, exits, told, add, question } = harness();
  add('told');
  add('gone');
  const [first, second] = [await question(), await question()];
  exits.isNews({ type: 'exit', id: 'told', execId: '', pid: 1, exit: { exitCode: 0, exitedAt: new Date(0) } });
  // The next task has the same ID.
  unanswered.forget('gone');
  add('gone');
  first.answer(undefined);
  second.answer(undefined);
  const again = await question();
  assert.deepEqual([again.id, told], ['gone', []]);
  again.answer(found('gone', Status.RUNNING));
  while (told.length === 0) await delay(PAUSE_MS);
  assert.deepEqual(told, ['gone lives']);
});

test('however many do not answer, few questions are under way; none after the end', async () => {
  const { unanswered, questions, told, add, question: nextQuestion } = harness();
  for (let at = 0; at < SHIMS; at += 1) add(`shim ${at}`);
  let asked = 0;
  while (asked < SHIMS) {
    const next = await nextQuestion();
    asked += 1;
    assert.ok(questions.length < 8, `${questions.length + 1} questions`);
    next.answer(asked === SHIMS ? undefined : found(next.id, Status.UNKNOWN));
  }
  await nextQuestion();
  unanswered.close();
  for (const question of questions) question.answer(found(question.id, Status.STOPPED));
  await delay(5 * PAUSE_MS);
  assert.equal(told.length, 1);
});
