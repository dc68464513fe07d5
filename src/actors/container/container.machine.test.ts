/** The life of a container as clients see it: starts, ends, stops, restarts, pauses and signals. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { conflict, isEngineError, notFound } from '../../errors/engine-error.js';
import type { WaitResult } from './container.messages.js';
import { withState } from './container.record.js';
import { toldKey } from './life/told.js';
import { harness, record, tick, withHost } from './machine-fixture.js';

test('create, start, wait, exit: each command is answered and events come in order', async () => {
  const c = harness({ phase: 'new', record });
  await c.ask({ type: 'container.settled' });
  const waited = c.ask<WaitResult>({ type: 'container.wait', condition: 'next-exit' });
  await c.ask({ type: 'container.start' });
  assert.equal(c.last()?.state.status, 'running');
  c.exit(3);
  assert.deepEqual(await waited, { exitCode: 3 });
  await tick();
  assert.equal(c.last()?.state.status, 'exited');
  assert.deepEqual(c.events, ['create', 'start', 'die']);
  assert.deepEqual(await c.ask({ type: 'container.wait', condition: 'not-running' }), { exitCode: 3 });
});

test('an end that the last daemon told is settled without being told again; the next one is told', async () => {
  const key = toldKey('container', 'die', record.id);
  const told = new Map([[key, { timeMs: 0, attributes: {} }]]);
  const releases: boolean[] = [];
  const c = harness(
    {
      phase: 'exited',
      record: withState(record, { status: 'running' }),
      exit: { exitCode: 3, exitedAt: new Date() },
      told,
    },
    { release: async ({ record: r, told: events }) => (releases.push(events.has(key)), r) },
  );
  await c.ask({ type: 'container.settled' });
  assert.deepEqual([c.last()?.state.status, c.last()?.state.exitCode, c.events], ['exited', 3, []]);
  await c.ask({ type: 'container.start' });
  c.exit(0);
  await tick();
  assert.deepEqual(
    [c.events, releases],
    [
      ['start', 'die'],
      [true, false],
    ],
  );
});

test('an exit that beats the reply of the start is not lost, and the time of its run is that of this run', async () => {
  const told: unknown[] = [];
  const c = harness(
    { phase: 'idle', record },
    {
      start: async (r) => {
        const startedAt = new Date().toISOString();
        c.exit(0);
        return withState(r, { status: 'running', pid: 7, startedAt });
      },
      emit: (action, _record, attributes) => told.push([action, attributes]),
    },
  );
  await c.ask({ type: 'container.start' });
  await tick();
  assert.equal(c.state(), 'idle');
  assert.deepEqual(told, [
    ['start', undefined],
    ['die', { exitCode: '0', execDuration: '0' }],
  ]);
});

test('start while running and stop while stopped are not modified', async () => {
  const c = harness({ phase: 'idle', record });
  await assert.rejects(c.ask({ type: 'container.stop', options: {} }), (e) => isEngineError(e, 'not-modified'));
  await c.ask({ type: 'container.start' });
  await assert.rejects(c.ask({ type: 'container.start' }), (e) => isEngineError(e, 'not-modified'));
});

test('stops join one stop and all are answered; stop comes before die', async () => {
  let exitNow = (): void => undefined;
  const c = harness({ phase: 'idle', record }, { stop: () => new Promise(() => (exitNow = () => c.exit(143))) });
  await c.ask({ type: 'container.start' });
  const stops = [c.ask({ type: 'container.stop', options: {} }), c.ask({ type: 'container.stop', options: {} })];
  await tick();
  exitNow();
  await Promise.all(stops);
  assert.deepEqual(c.events, ['start', 'stop', 'die']);
});

test('a failed start leaves a created container with its exit code and error', async () => {
  const c = harness(
    { phase: 'idle', record },
    { start: async () => Promise.reject(conflict('no such command', { details: { exitCode: 127 } })) },
  );
  await assert.rejects(c.ask({ type: 'container.start' }), /no such command/);
  await tick();
  assert.equal(c.last()?.state.status, 'created');
  assert.equal(c.last()?.state.exitCode, 127);
});

test('restart policy brings it back after the backoff, a stop ends that', async () => {
  const c = harness({ phase: 'idle', record: withHost({ RestartPolicy: { Name: 'always', MaximumRetryCount: 0 } }) });
  await c.ask({ type: 'container.start' });
  c.exit(1);
  await tick();
  assert.equal(c.last()?.state.status, 'restarting');
  await new Promise((resolve) => setTimeout(resolve, 150));
  assert.equal(c.last()?.state.status, 'running');
  assert.equal(c.last()?.restartCount, 1);
  c.exit(1);
  await tick();
  await c.ask({ type: 'container.stop', options: {} });
  assert.equal(c.last()?.state.status, 'exited');
});

test('one that comes back is never seen as exited, and a stop while it is released keeps it down', async () => {
  let release = (): void => undefined;
  const order: string[] = [];
  const c = harness(
    { phase: 'idle', record: withHost({ RestartPolicy: { Name: 'on-failure', MaximumRetryCount: 1 } }) },
    {
      release: ({ record: r }) => new Promise((resolve) => (release = () => resolve(r))),
      publish: (_id, view) => (c.views.push(view), order.push(view?.state.status ?? 'gone')),
      exited: () => void order.push('parted'),
      released: () => void order.push('ended'),
    },
  );
  await c.ask({ type: 'container.start' });
  c.exit(1);
  await tick();
  assert.deepEqual([c.last()?.state.status, c.last()?.restartCount], ['restarting', 1]);
  const stopped = c.ask({ type: 'container.stop', options: {} });
  release();
  await stopped;
  // Only the stop shows it as exited, and streams end when all else is settled.
  assert.deepEqual(order, ['running', 'restarting', 'parted', 'restarting', 'ended', 'exited']);
  await c.ask({ type: 'container.start' });
  c.exit(0);
  await tick();
  assert.equal(c.last()?.state.status, 'exited', 'a good end is the last one');
});

test('restart of a running container stops and starts it and answers once it runs', async () => {
  const c = harness({ phase: 'idle', record });
  await c.ask({ type: 'container.start' });
  await c.ask({ type: 'container.restart', options: {} });
  assert.equal(c.last()?.state.status, 'running');
  // A client that looks in between must not take the container for ended.
  assert.deepEqual(
    c.views.map((view) => view?.state.status),
    ['running', 'restarting', 'restarting', 'running'],
  );
  assert.deepEqual(c.events, ['start', 'stop', 'die', 'start', 'restart']);
});

test('kill: a plain signal answers at once, SIGKILL when the exit is settled; a lost process conflicts', async () => {
  const c = harness({ phase: 'idle', record });
  await assert.rejects(c.ask({ type: 'container.kill', signal: 9 }), /is not running/);
  await c.ask({ type: 'container.start' });
  await c.ask({ type: 'container.kill', signal: 1 });
  let answered = false;
  const killed = c.ask({ type: 'container.kill', signal: 9 }).then(() => (answered = true));
  await tick();
  assert.equal(answered, false);
  c.exit(137);
  await killed;
  const gone = harness(
    { phase: 'idle', record },
    { kill: async () => Promise.reject(notFound('process already finished')) },
  );
  await gone.ask({ type: 'container.start' });
  await assert.rejects(gone.ask({ type: 'container.kill', signal: 9 }), (e) => isEngineError(e, 'conflict'));
});

test('a signal under way is answered as it went, also when the container is removed first', async () => {
  const sent: (() => void)[] = [];
  const c = harness(
    { phase: 'idle', record: withHost({ AutoRemove: true }) },
    { kill: () => new Promise((resolve) => sent.push(resolve)) },
  );
  await c.ask({ type: 'container.start' });
  const killed = c.ask({ type: 'container.kill', signal: 15 });
  c.exit(143);
  while (c.state() !== 'gone') await tick();
  sent[0]?.();
  await killed;
});

test('pause and unpause; a paused container refuses start', async () => {
  const c = harness({ phase: 'idle', record });
  await c.ask({ type: 'container.start' });
  await assert.rejects(c.ask({ type: 'container.unpause' }), /is not paused/);
  await c.ask({ type: 'container.pause' });
  assert.equal(c.last()?.state.status, 'paused');
  await assert.rejects(c.ask({ type: 'container.start' }), /cannot start a paused container/);
  await assert.rejects(c.ask({ type: 'container.pause' }), /already paused/);
  await c.ask({ type: 'container.unpause' });
  assert.equal(c.last()?.state.status, 'running');
});

test('a second stop brings the end forward, and never puts it off', async () => {
  const plans: number[] = [];
  const c = harness(
    { phase: 'idle', record },
    { stop: ({ killAtMs }) => (plans.push(killAtMs), new Promise(() => undefined)) },
  );
  await c.ask({ type: 'container.start' });
  const stops = [{ timeoutSeconds: 100 }, { timeoutSeconds: 1 }, { timeoutSeconds: -1 }].map((options) =>
    c.ask({ type: 'container.stop', options }),
  );
  await tick();
  assert.equal(plans.length, 3);
  assert.ok((plans[0] ?? 0) - (plans[1] ?? 0) > 90_000);
  assert.equal(plans[2], plans[1]);
  c.exit(0);
  await Promise.all(stops);
});

test('a pause that the end of the container overtakes is refused', async () => {
  const c = harness({ phase: 'idle', record }, { pause: () => new Promise(() => undefined) });
  await c.ask({ type: 'container.start' });
  const paused = c.ask({ type: 'container.pause' });
  c.exit(0);
  await assert.rejects(paused, (e) => isEngineError(e, 'conflict'));
  assert.deepEqual(c.events, ['start', 'die']);
});
