import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import test from 'node:test';
import { waitFor } from '../../test/support/wait.js';
import { Progress } from './progress.js';

const STALL_MS = 300;

test('a process that works is waited for, one that sleeps, is stopped or has ended is not', async (t) => {
  const busy = spawn('sh', ['-c', 'while :; do :; done']);
  const idle = spawn('sleep', ['1000']);
  t.after(() => [busy, idle].map((child) => child.kill('SIGKILL')));
  await Promise.all([busy, idle].map((child) => once(child, 'spawn')));
  const worker = new Progress(busy.pid ?? 0, 60_000);
  const sleeper = new Progress(idle.pid ?? 0, STALL_MS);
  assert.equal(worker.isMoving, true);
  await waitFor('the sleeper to be given up', () => !sleeper.isMoving, 60_000);
  assert.equal(worker.isMoving, true);
  sleeper.restart();
  assert.equal(sleeper.isMoving, true, 'a new wait begins anew');
  busy.kill('SIGSTOP');
  await waitFor('the stopped one to be given up', () => !worker.isMoving, 60_000);
  const ended = once(idle, 'exit');
  idle.kill('SIGKILL');
  await ended;
  assert.equal(new Progress(idle.pid ?? 0).isMoving, false);
});
