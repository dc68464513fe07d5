import assert from 'node:assert/strict';
import { afterEach, test } from 'node:test';
import { createActor, type AnyActor } from 'xstate';
import { EngineError } from '../../errors/engine-error.js';
import type { Unasked } from '../kit/commands.js';
import { Replies } from '../kit/replies.js';
import { created, size } from './exec-fixture.js';
import { createExecMachine, type ExecEffects } from './exec.machine.js';
import type { ExecCommand } from './exec.messages.js';

const started: AnyActor[] = [];
afterEach(() => {
  for (const actor of started.splice(0)) actor.stop();
});

/**
 * Begins an exec whose effects succeed at once unless a test replaces them. `log` has what others see, in its order.
 */
function begin(overrides: Partial<ExecEffects> = {}) {
  const log: string[] = [];
  const replies = new Replies();
  const machine = createExecMachine(
    {
      start: async () => ({ pid: 7 }),
      drain: async () => void log.push('drain'),
      resize: async ({ pid }, { width }) => void log.push(`resize ${pid} to ${width}`),
      ...overrides,
    },
    {
      publish: ({ running, exitCode }) => log.push(`publish ${running ? 'running' : exitCode}`),
      emit: (action) => log.push(action),
    },
    replies,
  );
  const actor = createActor(machine, { input: created }).start();
  started.push(actor);
  const ask = async (command: Unasked<ExecCommand>): Promise<void> =>
    replies.ask<ExecCommand>(actor, command).then(
      (value) => void log.push(`${command.type} answered ${value ?? ''}`.trimEnd()),
      (error: Error) => void log.push(`${command.type} refused: ${error.message}`),
    );
  const exit = (exitCode: number): void =>
    actor.send({ type: 'exec.exited', exit: { exitCode, exitedAt: new Date(0) } });
  return { log, ask, exit, start: () => ask({ type: 'exec.start', tty: true, size }) };
}

test('an exec is published and told before its start is answered; its exit code before its output ends', async () => {
  const { log, ask, exit, start } = begin();
  await start();
  const waiting = ask({ type: 'exec.wait' });
  exit(3);
  await waiting;
  assert.deepEqual(log, [
    'publish running',
    'exec_start',
    'exec.start answered',
    'publish 3',
    'exec_die',
    'drain',
    'exec.wait answered 3',
  ]);
});

test('a resize waits for the start, and is refused before and after the run', async () => {
  const { log, ask, exit, start } = begin();
  const resize = () => ask({ type: 'exec.resize', size });
  await resize();
  await Promise.all([start(), resize()]);
  exit(0);
  await ask({ type: 'exec.wait' });
  await resize();
  assert.deepEqual(
    log.filter((line) => line.includes('resize')),
    [
      'exec.resize refused: exec process is not started',
      'resize 7 to 80',
      'exec.resize answered',
      'exec.resize refused: exec process is not started',
    ],
  );
});

test('a start that fails is the end of the exec for all who asked', async () => {
  const error = new EngineError('invalid', 'no such file', { details: { exitCode: 127 } });
  const { log, ask, start } = begin({ start: () => Promise.reject(error) });
  await Promise.all([start(), ask({ type: 'exec.resize', size }), ask({ type: 'exec.wait' })]);
  await start();
  assert.deepEqual(log, [
    'publish 127',
    'exec.start refused: no such file',
    'exec.resize refused: exec process is not started',
    'exec.wait answered 127',
    'exec.start refused: Error: Exec command e has already run',
  ]);
});
