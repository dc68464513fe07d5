import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { TaskInfo, TaskStatus } from '../../../ports/supervisor.js';
import { NEVER, type ContainerRecord, type ContainerStatus } from '../container.record.js';
import { reconcile } from './reconcile.js';
import { nextDelayMs, wantsRestart, wantsStartAtBoot } from './restart-policy.js';

const at = new Date('2026-01-01T00:00:00Z');
const record = (status: ContainerStatus, extra: object = {}): ContainerRecord =>
  ({
    id: 'a',
    state: {
      status,
      pid: 1,
      exitCode: 0,
      error: '',
      oomKilled: false,
      startedAt: '2026-01-01T00:00:00Z',
      finishedAt: NEVER,
    },
    hostConfig: { RestartPolicy: { Name: 'no', MaximumRetryCount: 0 } },
    restartCount: 0,
    manuallyStopped: false,
    networks: {},
    ...extra,
  }) as unknown as ContainerRecord;
const task = (status: TaskStatus, exitCode?: number): TaskInfo => ({
  id: 'a',
  pid: 42,
  status,
  stdio: { stdin: '', stdout: '', stderr: '', terminal: false },
  ...(exitCode === undefined ? {} : { exit: { exitCode, exitedAt: at } }),
});

test('record and task together tell where a container begins', () => {
  const cases: [ContainerStatus, TaskInfo | undefined, string, number?][] = [
    ['created', undefined, 'idle'],
    ['exited', undefined, 'idle'],
    ['running', task('running'), 'running'],
    ['exited', task('running'), 'running'],
    ['running', task('paused'), 'running'],
    ['running', task('unknown'), 'running'],
    ['running', task('stopped', 3), 'exited', 3],
    ['running', undefined, 'exited', 255],
    ['restarting', undefined, 'idle'],
    ['starting', task('created'), 'exited', 128],
    ['starting', undefined, 'exited', 128],
    ['removing', undefined, 'removing'],
    ['dead', task('running'), 'removing'],
  ];
  for (const [status, seen, phase, exitCode] of cases) {
    const input = reconcile(record(status), seen, at);
    assert.equal(input.phase, phase, `${status} with ${seen?.status ?? 'no task'}`);
    if (exitCode !== undefined) assert.equal(input.phase === 'exited' && input.exit.exitCode, exitCode);
  }
  assert.equal(reconcile(record('running'), task('paused'), at).record.state.status, 'paused');
  assert.equal(reconcile(record('running'), task('running'), at).record.state.pid, 42);
  // The restart that was owed is still owed, and does not count.
  const owed = reconcile(record('restarting', { restartCount: 3 }), undefined, at).record;
  assert.deepEqual([owed.state.status, owed.restartCount], ['exited', 2]);
  assert.equal(reconcile(record('restarting', { restartCount: 3 }), task('running'), at).record.restartCount, 3);
});

test('a change of networks that a crash cut short is left to those that run', () => {
  const networks = { a: { request: {} }, b: { request: {}, pending: { endpointId: 'e', interfaceName: 'eth1' } } };
  assert.deepEqual(reconcile(record('exited', { networks }), undefined, at).record.networks, { a: { request: {} } });
  assert.deepEqual(reconcile(record('running', { networks }), undefined, at).record.networks, { a: { request: {} } });
  assert.deepEqual(reconcile(record('running', { networks }), task('running'), at).record.networks, networks);
});

test('restart policies', () => {
  const policy = (Name: string, MaximumRetryCount = 0, extra: object = {}, exitCode = 0): ContainerRecord => {
    const base = record('exited', { hostConfig: { RestartPolicy: { Name, MaximumRetryCount } }, ...extra });
    return { ...base, state: { ...base.state, exitCode } };
  };
  assert.equal(wantsRestart(policy('no', 0, {}, 1)), false);
  assert.equal(wantsRestart(policy('always')), true);
  assert.equal(wantsRestart(policy('always', 0, { manuallyStopped: true })), false);
  assert.equal(wantsStartAtBoot(policy('always', 0, { manuallyStopped: true })), true);
  assert.equal(wantsStartAtBoot(policy('unless-stopped', 0, { manuallyStopped: true })), false);
  assert.equal(wantsRestart(policy('on-failure', 3, { restartCount: 2 }, 1)), true);
  assert.equal(wantsRestart(policy('on-failure', 3, { restartCount: 3 }, 1)), false);
  assert.equal(wantsRestart(policy('on-failure', 0, {}, 0)), false);
});

test('the delay doubles up to a minute and starts over after a healthy run', () => {
  assert.equal(nextDelayMs(0, 0), 100);
  assert.equal(nextDelayMs(100, 500), 200);
  assert.equal(nextDelayMs(40_000, 500), 60_000);
  assert.equal(nextDelayMs(40_000, 10_000), 100);
});
