import assert from 'node:assert/strict';
import { test } from 'node:test';
import { createActor, type Actor } from 'xstate';
import { conflict, type EngineError, internal, isEngineError, notFound } from '../../errors/engine-error.js';
import type { ContainerConfig, HostConfig } from '../../ports/container.js';
import type { Unasked } from '../kit/commands.js';
import { Replies } from '../kit/replies.js';
import type { ContainerEffects, ContainerHooks } from './container.effects.types.js';
import { createContainerMachine } from './container.machine.js';
import type { ContainerInput } from './container.setup.js';
import type { ContainerCommand, WaitResult } from './container.messages.js';
import { NEVER, withState, type ContainerRecord } from './container.record.js';

const record: ContainerRecord = {
  version: 1,
  id: 'ab'.repeat(32),
  name: '/web',
  created: '2026-01-01T00:00:00Z',
  path: 'true',
  args: [],
  image: 'sha256:00',
  topLayer: undefined,
  config: { Labels: {} } as unknown as ContainerConfig,
  hostConfig: { RestartPolicy: { Name: 'no', MaximumRetryCount: 0 }, AutoRemove: false } as HostConfig,
  networks: {},
  mounts: [],
  ports: [],
  state: { status: 'created', pid: 0, exitCode: 0, error: '', oomKilled: false, startedAt: NEVER, finishedAt: NEVER },
  restartCount: 0,
  manuallyStopped: false,
  logPath: '',
};

const withHost = (host: Partial<HostConfig>): ContainerRecord => ({
  ...record,
  hostConfig: { ...record.hostConfig, ...host },
});
const tick = (): Promise<void> => new Promise((resolve) => setImmediate(resolve));

/**
 * A container actor over effects that succeed at once unless a test replaces them; nothing here pretends to be a
 * driver.
 */
function harness(input: ContainerInput, overrides: Partial<ContainerEffects & ContainerHooks> = {}) {
  const replies = new Replies();
  const events: string[] = [];
  const views: (ContainerRecord | undefined)[] = [];
  const log: string[] = [];
  const effects: ContainerEffects = {
    create: async (r) => r,
    start: async (r) => (
      log.push('start'),
      withState(r, { status: 'running', pid: 7, startedAt: new Date().toISOString() })
    ),
    adopt: async ({ record: r }) => r,
    stop: () => {
      log.push('stop');
      actor.send({ type: 'task.exited', exit: { exitCode: 143, exitedAt: new Date() } });
      return new Promise(() => undefined);
    },
    pause: async () => undefined,
    unpause: async () => undefined,
    drain: async () => undefined,
    release: async (r) => (log.push('release'), r),
    remove: async () => void log.push('remove'),
    rewire: async ({ record: r, change }) => (
      log.push('rewire'),
      { ...r, networks: { [change.network]: { request: {} } } }
    ),
    save: async () => undefined,
    ...overrides,
  };
  const hooks: ContainerHooks = {
    publish: (_id, view) => views.push(view),
    emit: (action) => events.push(action),
    kill: async () => undefined,
    exited: () => undefined,
    released: () => undefined,
    saveLater: () => undefined,
    ...overrides,
  };
  const actor: Actor<ReturnType<typeof createContainerMachine>> = createActor(
    createContainerMachine(effects, hooks, replies),
    { input },
  );
  actor.subscribe({
    complete: () => replies.actorEnded(actor),
    error: (error) => replies.actorEnded(actor, error as EngineError),
  });
  actor.start();
  const ask = <T = unknown>(command: Unasked<ContainerCommand>, signal?: AbortSignal): Promise<T> =>
    replies.ask<ContainerCommand>(actor, command, signal) as Promise<T>;
  const exit = (exitCode: number): void =>
    actor.send({ type: 'task.exited', exit: { exitCode, exitedAt: new Date() } });
  const state = (): unknown => actor.getSnapshot().value;
  return { actor, ask, exit, events, views, log, state, replies, last: () => views.at(-1) };
}

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

test('an exit that beats the reply of the start is not lost', async () => {
  const c = harness(
    { phase: 'idle', record },
    {
      start: async (r) => {
        c.exit(0);
        return withState(r, { status: 'running', pid: 7 });
      },
    },
  );
  await c.ask({ type: 'container.start' });
  await tick();
  assert.equal(c.state(), 'idle');
  assert.deepEqual(c.events, ['start', 'die']);
});

test('start while running and stop while stopped are not modified', async () => {
  const c = harness({ phase: 'idle', record });
  await assert.rejects(c.ask({ type: 'container.stop', options: {} }), (e) => isEngineError(e, 'not-modified'));
  await c.ask({ type: 'container.start' });
  await assert.rejects(c.ask({ type: 'container.start' }), (e) => isEngineError(e, 'not-modified'));
});

test('stops join one stop and all are answered; die comes before stop', async () => {
  let exitNow = (): void => undefined;
  const c = harness({ phase: 'idle', record }, { stop: () => new Promise(() => (exitNow = () => c.exit(143))) });
  await c.ask({ type: 'container.start' });
  const stops = [c.ask({ type: 'container.stop', options: {} }), c.ask({ type: 'container.stop', options: {} })];
  await tick();
  exitNow();
  await Promise.all(stops);
  assert.deepEqual(c.events, ['start', 'die', 'stop']);
});

test('commands that arrive while the exit is settled wait their turn', async () => {
  let finish = (): void => undefined;
  const c = harness(
    { phase: 'idle', record },
    { release: (r) => new Promise((resolve) => (finish = () => resolve(r))) },
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
      release: (r) => new Promise((resolve) => (release = () => resolve(r))),
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
  assert.deepEqual(c.events, ['start', 'die', 'stop', 'start', 'restart']);
});

test('kill: a plain signal answers at once, SIGKILL when the exit is settled, a vanished process is a conflict', async () => {
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

test('a change that comes during a start or a release is in the record afterwards', async () => {
  let finish = (): void => undefined;
  const slow = (r: ContainerRecord): Promise<ContainerRecord> =>
    new Promise((resolve) => (finish = () => resolve(withState(r, { status: 'running', pid: 7 }))));
  const c = harness({ phase: 'idle', record }, { start: slow, release: slow });
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

test('a change is seen when it is on disk, made anew when the record is another by then, and not at all when the write fails', async () => {
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

test('networks are changed while a container rests or runs; what comes in between waits, an exit is not lost', async () => {
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
