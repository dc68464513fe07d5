/** Commands that meet others: what waits, what is refused, what is in the record afterwards; and removals. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { conflict, internal, isEngineError } from '../../errors/engine-error.js';
import type { Unasked } from '../kit/commands.js';
import type { ContainerCommand, WaitResult } from './container.messages.js';
import { withState, type ContainerRecord } from './container.record.js';
import { harness, record, tick, withHost } from './machine-fixture.js';

test('commands that arrive while the exit is settled wait their turn', async () => {
  let finish = (): void => undefined;
  const c = harness(
    { phase: 'idle', record },
    { release: ({ record: r }) => new Promise((resolve) => (finish = () => resolve(r))) },
  );
  await c.ask({ type: 'container.start' });
  c.exit(0);
  await tick();
  const removed = c.ask({ type: 'container.remove', options: { force: false, volumes: false } });
  await tick();
  assert.equal(c.state(), 'releasing');
  finish();
  await removed;
  assert.equal(c.last(), undefined);
});

test('a running container is removed only with force; removal wakes every waiter', async () => {
  const c = harness({ phase: 'idle', record });
  await c.ask({ type: 'container.start' });
  await assert.rejects(
    c.ask({ type: 'container.remove', options: { force: false, volumes: false } }),
    /stop the container before removing or force remove/,
  );
  const waits = (['not-running', 'next-exit', 'removed'] as const).map((condition) =>
    c.ask<WaitResult>({ type: 'container.wait', condition }),
  );
  await c.ask({ type: 'container.remove', options: { force: true, volumes: true } });
  assert.deepEqual(
    (await Promise.all(waits)).map((r) => r.exitCode),
    [143, 143, 143],
  );
  assert.deepEqual(c.events, ['start', 'die', 'destroy']);
});

test('auto-remove removes after the exit, and after a failed start', async () => {
  const c = harness({ phase: 'idle', record: withHost({ AutoRemove: true }) });
  const removed = c.ask<WaitResult>({ type: 'container.wait', condition: 'removed' });
  await c.ask({ type: 'container.start' });
  c.exit(9);
  assert.deepEqual(await removed, { exitCode: 9 });
  const failing = harness(
    { phase: 'idle', record: withHost({ AutoRemove: true }) },
    { start: async () => Promise.reject(internal('boom', { details: { exitCode: 127 } })) },
  );
  await assert.rejects(failing.ask({ type: 'container.start' }), /boom/);
  await tick();
  assert.deepEqual(failing.log, ['remove']);
});

test('a failed removal leaves a dead container that can be removed again', async () => {
  let fail = true;
  const c = harness(
    { phase: 'idle', record },
    { remove: async () => (fail ? Promise.reject(internal('busy')) : undefined) },
  );
  await assert.rejects(c.ask({ type: 'container.remove', options: { force: false, volumes: false } }), /busy/);
  assert.equal(c.last()?.state.status, 'dead');
  await assert.rejects(c.ask({ type: 'container.start' }), /marked for removal/);
  fail = false;
  await c.ask({ type: 'container.remove', options: { force: false, volumes: false } });
});

test('a client that goes away takes its wait with it', async () => {
  const c = harness({ phase: 'idle', record });
  await c.ask({ type: 'container.start' });
  const abort = new AbortController();
  const waiting = c.ask({ type: 'container.wait', condition: 'not-running' }, abort.signal);
  abort.abort();
  await assert.rejects(waiting, (e) => isEngineError(e, 'cancelled'));
  assert.equal(c.actor.getSnapshot().context.waiters.length, 0);
  assert.equal(c.replies.size, 0);
});

test('a change that comes during a start or a release is in the record afterwards', async () => {
  let finish = (): void => undefined;
  const slow = (r: ContainerRecord): Promise<ContainerRecord> =>
    new Promise((resolve) => (finish = () => resolve(withState(r, { status: 'running', pid: 7 }))));
  const c = harness({ phase: 'idle', record }, { start: slow, release: ({ record: r }) => slow(r) });
  const started = c.ask({ type: 'container.start' });
  const renamed = c.ask({ type: 'container.amend', amend: (r) => ({ ...r, name: '/other' }) });
  await tick();
  finish();
  await Promise.all([started, renamed]);
  assert.equal(c.last()?.name, '/other');
  c.exit(0);
  await tick();
  const again = c.ask({ type: 'container.amend', amend: (r) => ({ ...r, name: '/third' }) });
  finish();
  await again;
  assert.equal(c.last()?.name, '/third');
});

test('a change is seen when it is on disk, made anew for another record, not seen after a failed write', async () => {
  const writes: { record: ContainerRecord; finish: (error?: Error) => void }[] = [];
  const save = (r: ContainerRecord): Promise<void> =>
    new Promise((resolve, reject) =>
      writes.push({ record: r, finish: (error) => (error ? reject(error) : resolve()) }),
    );
  const c = harness({ phase: 'idle', record }, { save });
  const rename = (name: string): Promise<ContainerRecord> =>
    c.ask({ type: 'container.amend', amend: (r) => ({ ...r, name }) });
  const first = rename('/first');
  const second = rename('/second');
  const failed = assert.rejects(second, /ENOSPC/);
  await tick();
  assert.deepEqual([writes.length, c.last()?.name], [1, undefined]);
  writes[0]?.finish();
  assert.equal((await first).name, '/first');
  assert.deepEqual([c.last()?.name, writes[1]?.record.name], ['/first', '/second']);
  writes[1]?.finish(internal('ENOSPC'));
  await failed;
  assert.equal(c.last()?.name, '/first');
  // It starts while a change is being written.
  const third = rename('/third');
  await c.ask({ type: 'container.start' });
  writes[2]?.finish();
  await tick();
  assert.deepEqual(
    [writes[3]?.record.name, writes[3]?.record.state.status, c.last()?.name],
    ['/third', 'running', '/first'],
  );
  writes[3]?.finish();
  assert.deepEqual([(await third).name, c.last()?.state.status], ['/third', 'running']);
});

test('whatever comes during a removal is answered with a conflict or, at its end, with not found', async () => {
  const held: { finish?: () => void } = {};
  const c = harness(
    { phase: 'idle', record },
    { remove: () => new Promise((resolve) => (held.finish = resolve)), stop: () => new Promise(() => undefined) },
  );
  await c.ask({ type: 'container.start' });
  const restarted = c.ask({ type: 'container.restart', options: {} });
  const removed = c.ask({ type: 'container.remove', options: { force: true, volumes: false } });
  c.exit(0);
  await assert.rejects(restarted, /marked for removal/);
  await tick();
  assert.equal(c.state(), 'removing');
  await assert.rejects(c.ask({ type: 'container.start' }), /marked for removal/);
  await assert.rejects(c.ask({ type: 'container.stop', options: {} }), (e) => isEngineError(e, 'not-modified'));
  await assert.rejects(c.ask({ type: 'container.amend', amend: (r) => r }), (e) => isEngineError(e, 'conflict'));
  await assert.rejects(
    c.ask({ type: 'container.remove', options: { force: true, volumes: false } }),
    /already in progress/,
  );
  const settled = c.ask({ type: 'container.settled' });
  const waited = c.ask<WaitResult>({ type: 'container.wait', condition: 'removed' });
  held.finish?.();
  await removed;
  assert.deepEqual(await waited, { exitCode: 0 });
  await assert.rejects(settled, (e) => isEngineError(e, 'not-found'));
});

test('every command is answered in every resting state', async () => {
  const commands: Unasked<ContainerCommand>[] = [
    { type: 'container.settled' },
    { type: 'container.start' },
    { type: 'container.stop', options: {} },
    { type: 'container.shutdown', options: {} },
    { type: 'container.restart', options: {} },
    { type: 'container.kill', signal: 15 },
    { type: 'container.pause' },
    { type: 'container.unpause' },
    { type: 'container.remove', options: { force: false, volumes: false } },
    { type: 'container.amend', amend: (r) => r },
  ];
  const reach: Record<string, (c: ReturnType<typeof harness>) => Promise<void>> = {
    idle: async () => undefined,
    active: async (c) => void (await c.ask({ type: 'container.start' })),
    paused: async (c) => {
      await c.ask({ type: 'container.start' });
      await c.ask({ type: 'container.pause' });
    },
    backoff: async (c) => {
      await c.ask({ type: 'container.start' });
      c.exit(1);
      await tick();
    },
  };
  for (const [name, go] of Object.entries(reach)) {
    for (const command of commands) {
      const c = harness({
        phase: 'idle',
        record: withHost({ RestartPolicy: { Name: 'always', MaximumRetryCount: 0 } }),
      });
      await go(c);
      const outcome = await Promise.race([
        c.ask(command).then(
          () => 'answered',
          (error: unknown) => (isEngineError(error) ? 'answered' : 'failed'),
        ),
        new Promise<string>((resolve) => setTimeout(resolve, 500, 'silent')),
      ]);
      assert.equal(outcome, 'answered', `${command.type} in ${name}`);
      c.actor.stop();
    }
  }
});

test('networks change while a container rests or runs; what comes in between waits, an exit is not lost', async () => {
  let finish = (): void => undefined;
  const changed = new Promise<void>((resolve) => (finish = resolve));
  const c = harness(
    { phase: 'idle', record },
    {
      rewire: async ({ record: r, change }) => (
        await changed,
        { ...r, networks: { [change.network]: { request: {} } } }
      ),
    },
  );
  const change = { type: 'connect', network: 'back', request: {} } as const;
  const resting = c.ask<ContainerRecord>({ type: 'container.rewire', change });
  const renamed = c.ask<ContainerRecord>({ type: 'container.amend', amend: (r) => ({ ...r, name: '/other' }) });
  finish();
  assert.deepEqual(Object.keys((await resting).networks), ['back']);
  const amended = await renamed;
  assert.deepEqual([amended.name, Object.keys(amended.networks)], ['/other', ['back']]);
  assert.equal(c.state(), 'idle');
  await c.ask({ type: 'container.start' });
  const running = c.ask<ContainerRecord>({ type: 'container.rewire', change: { ...change, network: 'front' } });
  c.exit(0);
  assert.deepEqual(Object.keys((await running).networks), ['front']);
  await c.ask({ type: 'container.settled' });
  assert.deepEqual([c.state(), c.log.includes('release')], ['idle', true]);
});

test('a change of networks that is refused leaves the container as it was', async () => {
  const c = harness({ phase: 'idle', record }, { rewire: async () => Promise.reject(conflict('no')) });
  await c.ask({ type: 'container.start' });
  await c.ask({ type: 'container.pause' });
  await assert.rejects(c.ask({ type: 'container.rewire', change: { type: 'disconnect', network: 'back' } }), /no/);
  assert.deepEqual(c.state(), { running: 'paused' });
});

test('an effect that hangs is given up: whoever waits is told, and copies may take any time', async (t) => {
  t.mock.timers.enable({ apis: ['setTimeout'] });
  const hangs = (): Promise<never> => new Promise(() => undefined);
  const c = harness({ phase: 'idle', record }, { start: hangs });
  const started = c.ask({ type: 'container.start' });
  t.mock.timers.tick(10 * 60_000);
  await assert.rejects(started, /has made no progress for 300 seconds/);
  assert.equal(c.actor.getSnapshot().status, 'error');

  const copying = harness(
    { phase: 'idle', record },
    { start: (_record, _signal, pace) => pace.unlimited(new Promise(() => undefined)) },
  );
  const slow = copying.ask({ type: 'container.start' });
  const paused = copying.ask({ type: 'container.pause' });
  t.mock.timers.tick(4 * 60_000);
  const removed = copying.ask({ type: 'container.remove', options: { force: true, volumes: false } });
  t.mock.timers.tick(2 * 60_000);
  await assert.rejects(paused, /has been busy for 300 seconds/);
  assert.equal(copying.state(), 'starting');
  t.mock.timers.tick(3 * 60_000);
  for (const asked of [slow, removed]) await assert.rejects(asked, /has been busy/);
  assert.equal(copying.actor.getSnapshot().status, 'error');
});
