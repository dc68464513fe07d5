import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { readdirSync, readlinkSync } from 'node:fs';
import test from 'node:test';
import { setTimeout as delay } from 'node:timers/promises';
import { InitWatch } from './init-watch.js';

/** A busy machine may take a moment from the end of a process to the next step of a test. */
const PAUSE_MS = 150;
const HANG_MS = 20;

/** A watch whose questions are answered with `answers` one by one, and what came of it. */
function watching(...answers: (boolean | Error)[]) {
  const told: string[] = [];
  const watch = new InitWatch({
    pauseMs: PAUSE_MS,
    hangMs: HANG_MS,
    ask: async (id) => {
      told.push(`asked for ${id}`);
      const answer = answers.shift() ?? true;
      if (answer instanceof Error) throw answer;
      return answer;
    },
    lost: async (id) => void told.push(`lost ${id}`),
  });
  return { watch, told };
}

function begin(): { pid: number; end: () => Promise<void> } {
  const child = spawn('sleep', ['1000']);
  const ended = once(child, 'exit');
  assert.ok(child.pid);
  return { pid: child.pid, end: async () => void (child.kill('SIGKILL'), await ended) };
}

async function until(told: readonly string[], count: number): Promise<void> {
  while (told.length < count) await delay(PAUSE_MS);
  await delay(5 * PAUSE_MS); // Nothing more may come.
  assert.equal(told.length, count, told.join());
}

const pidfds = (): number =>
  readdirSync('/proc/self/fd').filter((fd) => {
    try {
      return readlinkSync(`/proc/self/fd/${fd}`).includes('pidfd');
    } catch {
      return false; // The directory's own descriptor.
    }
  }).length;

test('when a process has ended, who should tell is asked; two answers without the exit: it is lost', async () => {
  const { watch, told } = watching(false, new Error('away'), false);
  const { pid, end } = begin();
  watch.add('a', pid, { mayBeGone: false });
  watch.add('a', 1, { mayBeGone: false });
  await delay(5 * PAUSE_MS);
  assert.deepEqual(told, [], 'it lives');
  await end();
  await until(told, 4);
  assert.deepEqual(told, ['asked for a', 'asked for a', 'asked for a', 'lost a']);
  watch.close();
});

test('an exit that is told is not lost, and one that is told in time is not asked for', async () => {
  const { watch, told } = watching(false, true);
  const [first, second, third] = [begin(), begin(), begin()];
  watch.add('first', first.pid, { mayBeGone: false });
  watch.add('second', second.pid, { mayBeGone: false });
  watch.add('third', third.pid, { mayBeGone: false });
  assert.equal(pidfds(), 3);
  await Promise.all([first.end(), second.end()]);
  watch.remove('second');
  watch.remove('third');
  await third.end();
  await until(told, 2);
  assert.deepEqual(told, ['asked for first', 'asked for first']);
  watch.close();
  assert.equal(pidfds(), 0);
});

test('a process that is not there has ended, or is none of ours', async () => {
  const { watch, told } = watching(true);
  const { pid, end } = begin();
  await end();
  watch.add('strange', pid, { mayBeGone: false });
  watch.add('gone', pid, { mayBeGone: true });
  watch.add('none', 0, { mayBeGone: true });
  await until(told, 1);
  assert.deepEqual(told, ['asked for gone']);
  watch.close();
});

test('a process whose shim does not pass SIGKILL on is killed; a refusal of the shim counts', async () => {
  const { watch } = watching();
  const child = spawn('sleep', ['1000']);
  const ended = once(child, 'exit');
  assert.ok(child.pid);
  watch.add('a', child.pid, { mayBeGone: false });
  await assert.rejects(watch.killed('a', Promise.reject(new Error('no'))), /no/);
  await watch.killed('a', Promise.resolve());
  assert.equal(child.exitCode ?? child.signalCode, null);
  await watch.killed('a', new Promise(() => undefined));
  assert.deepEqual(await ended, [null, 'SIGKILL']);
  watch.close();
});
