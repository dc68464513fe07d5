import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { TaskInfo, TaskStatus } from '../../../ports/supervisor.js';
import { NEVER, type ContainerRecord, type ContainerStatus } from '../container.record.js';
import { reconcile, untoldBeginnings } from './reconcile.js';
import { nextDelayMs, wantsRestart, wantsStartAtBoot } from './restart-policy.js';
import { noteTold, toldKey, type ToldEvent, type ToldEvents, unrecordedJoins } from './told.js';

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
    ['starting', task('stopped', 3), 'exited', 3],
    ['starting', { ...task('stopped', 0), isUnwitnessed: true }, 'ended', 128],
    ['running', { ...task('stopped', 3), isUnwitnessed: true }, 'exited', 3],
    ['starting', task('created'), 'ended', 128],
    ['starting', undefined, 'ended', 128],
    ['exited', task('stopped', 3), 'ended', 0],
    ['exited', task('unknown'), 'ended', 0],
    ['restarting', task('stopped', 3), 'ended', 0],
    ['removing', undefined, 'removing'],
    ['dead', task('running'), 'removing'],
  ];
  for (const [status, seen, phase, exitCode] of cases) {
    const input = reconcile(record(status), seen, at);
    assert.equal(input.phase, phase, `${status} with ${seen?.status ?? 'no task'}`);
    const { state } = input.record;
    if (exitCode !== undefined)
      assert.equal(input.phase === 'exited' ? input.exit.exitCode : state.exitCode, exitCode, `${status} ${phase}`);
  }
  assert.equal(reconcile(record('running'), task('paused'), at).record.state.status, 'paused');
  assert.equal(reconcile(record('running'), task('running'), at).record.state.pid, 42);
  // The restart that was owed is still owed, and does not count.
  const owed = reconcile(record('restarting', { restartCount: 3 }), undefined, at).record;
  assert.deepEqual([owed.state.status, owed.restartCount], ['exited', 2]);
  assert.equal(reconcile(record('restarting', { restartCount: 3 }), task('running'), at).record.restartCount, 3);
  // One that is still being released comes back by itself, as it was counted.
  const released = reconcile(record('restarting', { restartCount: 3 }), task('stopped', 1), at).record;
  assert.deepEqual([released.state.status, released.state.pid, released.restartCount], ['restarting', 0, 3]);
  const unstarted = reconcile(record('starting'), undefined, at).record.state;
  assert.deepEqual([unstarted.status, unstarted.pid], ['exited', 0]);
  assert.match(unstarted.error, /stopped while the container was starting/);
});

/** Returns what was told: events of the container by action, and seconds after its start. */
function told(...events: [action: string, seconds: number, attributes?: Record<string, string>][]): ToldEvents {
  const map = new Map<string, ToldEvent>();
  for (const [action, seconds, attributes = {}] of events)
    noteTold(map, ['container', action, 'a'], { timeMs: at.getTime() + seconds * 1000, attributes });
  return map;
}

test('what the last daemon told of this run goes with its end; of an earlier run it does not', () => {
  const has = (events: ToldEvents, status: ContainerStatus = 'running', seen = task('stopped', 3)): unknown => {
    const input = reconcile(record(status), seen, at, events);
    return 'told' in input && input.told?.has(toldKey('container', 'die', 'a'));
  };
  assert.equal(has(told(['start', 1], ['die', 2])), true);
  assert.equal(has(told(['die', 2])), true, 'the start is too long ago');
  assert.equal(has(told(['start', -9], ['die', -8])), false, 'an earlier run');
  assert.equal(has(told(['die', -8], ['start', 1])), false);
  assert.equal(has(told(['start', 1], ['die', 2], ['start', 3])), false);
  assert.equal(has(told(['start', 1], ['die', 2]), 'exited'), true);
  assert.equal(has(new Map()), false);
  // Nothing else knows the exit.
  const untold = reconcile(record('running'), undefined, at, told(['die', 2, { exitCode: '7' }]));
  assert.deepEqual(untold.phase === 'exited' && untold.exit, { exitCode: 7, exitedAt: new Date(at.getTime() + 2000) });
  // It was started before the machine, or containerd, was gone.
  assert.equal(reconcile(record('starting'), undefined, at, told(['start', 1])).phase, 'exited');
  assert.equal(reconcile(record('starting'), undefined, at, told(['start', -9])).phase, 'ended');
});

test('a creation and a start that nobody was told of are told', () => {
  const since = at.getTime() - 60_000;
  const untold = (
    status: ContainerStatus,
    seen: TaskInfo | undefined,
    events: ToldEvents | undefined,
    sinceMs = since,
  ) => untoldBeginnings(reconcile(record(status, { created: at.toISOString() }), seen, at, events), events, sinceMs);
  const none = told();
  assert.deepEqual(untold('created', undefined, none), ['create']);
  assert.deepEqual(untold('created', undefined, told(['create', 0])), []);
  assert.deepEqual(untold('created', undefined, none, at.getTime() + 1), [], 'too long ago');
  assert.deepEqual(untold('created', undefined, undefined), [], 'nothing is known');
  assert.deepEqual(untold('starting', task('running'), none), ['start']);
  assert.deepEqual(untold('running', task('paused'), none), ['start']);
  assert.deepEqual(untold('starting', task('running'), told(['start', 1])), []);
  assert.deepEqual(untold('starting', task('running'), told(['start', -9])), ['start']);
  assert.deepEqual(untold('starting', task('stopped', 0), none), ['start'], 'it has ended since');
  assert.deepEqual(untold('running', task('stopped', 0), told(['start', 1], ['die', 2])), []);
  assert.deepEqual(untold('starting', undefined, none), [], 'it never ran');
  assert.deepEqual(untold('exited', undefined, none), []);
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

test('networks that were joined before anybody wrote it down are known from what was told', () => {
  const told = new Map<string, ToldEvent>();
  const tell = (action: string, id: string): void =>
    noteTold(told, ['network', action, id], { timeMs: 0, attributes: { name: id } });
  for (const id of ['known', 'left', 'unknown']) tell('connect', id);
  tell('disconnect', 'left');
  const networks = { known: { request: {}, endpoint: { networkId: 'known' } }, unknown: { request: {} } };
  assert.deepEqual(unrecordedJoins(told, record('starting', { networks })), [['unknown', { name: 'unknown' }]]);
});
