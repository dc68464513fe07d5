import assert from 'node:assert/strict';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test, type TestContext } from 'node:test';
import { openEventLog } from '../../events/event-log.js';
import type { EventLog } from '../../ports/events.js';
import type { Attempt } from '../../ports/kept-replies.js';
import type { TaskInfo } from '../../ports/supervisor.js';
import { withState, type ContainerRecord } from '../container/container.record.js';
import { record } from '../container/machine-fixture.js';
import { EarlierTold, isRemovalTold, readLastTold } from './told-events.js';
import { type Change, untoldChanges } from './untold-changes.js';

/** Returns the log of a daemon after one that told what `tell` tells. */
async function next(t: TestContext, tell: (log: EventLog) => void): Promise<EventLog> {
  const dir = await mkdtemp(join(tmpdir(), 'told-'));
  t.after(() => rm(dir, { recursive: true }));
  const open = (): Promise<EventLog> => openEventLog({ dir, onFailure: assert.ifError });
  const first = await open();
  tell(first);
  await first.close();
  const log = await open();
  t.after(() => log.close());
  return log;
}

const named = (id: string, state: Partial<ContainerRecord['state']> = {}): ContainerRecord =>
  withState({ ...record, id }, state);
const keysOf = (events: ReadonlyMap<string, unknown> | undefined): string[] => [...(events?.keys() ?? [])];

test('of opposite events of a container, its networks and its volumes the last one counts', async (t) => {
  const log = await next(t, (first) => {
    first.emit('container', 'start', 'a', {});
    first.emit('network', 'connect', 'n', { container: 'a' });
    first.emit('network', 'connect', 'm', { container: 'a' });
    first.emit('volume', 'mount', 'v', { container: 'a' });
    first.emit('network', 'disconnect', 'n', { container: 'a' });
    first.emit('container', 'start', 'other', {});
    first.emit('container', 'die', 'a', { exitCode: '3' });
    first.emit('volume', 'unmount', 'v', { container: 'a' });
    first.emit('container', 'start', 'b', {});
    first.emit('container', 'die', 'b', {});
    first.emit('container', 'start', 'b', {});
  });
  log.emit('container', 'die', 'b', {});
  const { byContainer } = await readLastTold(
    log,
    { found: [named('a', { status: 'running' }), named('b', { status: 'starting' })], retired: [] },
    new Map(),
  );
  const ofA = ['network connect m', 'network disconnect n', 'container die a', 'volume unmount v'];
  assert.deepEqual(keysOf(byContainer.get('a')), ofA);
  assert.equal(byContainer.get('a')?.get('container die a')?.attributes['exitCode'], '3');
  assert.deepEqual(keysOf(byContainer.get('b')), ['container start b'], 'what this daemon tells is no matter');
  assert.equal(byContainer.has('other'), false);
});

test('only containers that may have been in between are looked for', async (t) => {
  const log = await next(t, (first) => first.emit('container', 'destroy', 'gone', {}));
  const now = new Date().toISOString();
  const found = [
    named('rests', { status: 'exited' }),
    named('runs', { status: 'running', startedAt: '2026-01-01T00:00:00Z' }),
    named('begun', { status: 'running', startedAt: now }),
    { ...named('new'), created: now },
    named('ended', { status: 'running' }),
    named('left', { status: 'exited' }),
  ];
  const stdio = { stdin: '', stdout: '', stderr: '', terminal: false };
  const tasks = new Map<string, TaskInfo>([
    ['runs', { id: 'runs', pid: 1, status: 'running', stdio }],
    ['begun', { id: 'begun', pid: 1, status: 'running', stdio }],
    ['left', { id: 'left', pid: 1, status: 'stopped', stdio }],
  ]);
  const told = await readLastTold(log, { found, retired: [named('gone'), named('went')] }, tasks);
  assert.deepEqual([...told.byContainer.keys()].sort(), ['begun', 'ended', 'gone', 'left', 'new', 'went']);
  assert.deepEqual(
    ['gone', 'went', 'never'].map((id) => isRemovalTold(named(id), told)),
    [true, false, true],
  );
});

test('without a log nothing is known', async (t) => {
  const log = await next(t, () => undefined);
  const found = [named('ended', { status: 'running' })];
  const told = await readLastTold(log, { found, retired: [named('gone')] }, new Map());
  assert.deepEqual([told.byContainer.size, told.sinceMs], [0, Infinity]);
  assert.equal(isRemovalTold(named('gone'), told), true);
});

test('an event belongs to one request that an earlier daemon had begun', async (t) => {
  const begunMs = Date.now();
  const log = await next(t, (first) => {
    for (const signal of ['10', '10', '9']) first.emit('container', 'kill', 'a', { signal, name: 'web' });
  });
  log.emit('container', 'kill', 'a', { signal: '12' });
  await log.written();
  const earlier = new EarlierTold(log);
  const attempt = { isInterrupted: true, begunMs } as Attempt;
  const has = (signal: string, changes: Partial<Attempt> = {}): Promise<boolean> =>
    earlier.has({ ...attempt, ...changes }, ['container', 'kill', 'a'], { signal });
  assert.equal(await earlier.has(undefined, ['container', 'kill', 'a'], { signal: '9' }), false);
  assert.equal(await has('9', { isInterrupted: false }), false);
  assert.equal(await has('9', { begunMs: begunMs + 60_000 }), false);
  assert.equal(await has('12'), false, 'this daemon told it');
  assert.deepEqual([await has('10'), await has('10'), await has('10')], [true, true, false]);
  assert.deepEqual([await has('9'), await has('9')], [true, false]);
});

test('what was made just before the end and not told is found, also when its name was there before', async (t) => {
  const log = await next(t, (first) => {
    first.emit('volume', 'create', 'told', {});
    first.emit('volume', 'create', 'again', {});
    first.emit('volume', 'destroy', 'again', {});
    first.emit('network', 'create', 'n', {});
    first.emit('network', 'connect', 'm', { container: 'a' });
  });
  const change = (action: Change['action'], type: Change['type'], id: string, atMs = Date.now()): Change => ({
    type,
    action,
    id,
    atMs,
    attributes: {},
  });
  const changes = [
    ...['told', 'again', 'n'].map((name) => change('create', 'volume', name)),
    ...['n', 'm'].map((id) => change('create', 'network', id)),
    change('create', 'volume', 'old', Date.parse('2026-01-01T00:00:00Z')),
  ];
  const find = async (all: readonly Change[]): Promise<string[]> =>
    (await untoldChanges(log, all)).map(({ type, action, id }) => `${action} ${type} ${id}`);
  assert.deepEqual(await find(changes), ['create volume again', 'create volume n', 'create network m']);
  log.emit('network', 'create', 'm', {});
  assert.deepEqual(await find([change('create', 'volume', 'told')]), []);
  // It was removed, and its name came again.
  const removal = change('destroy', 'volume', 'told', Date.now() + 1);
  assert.deepEqual(await find([change('create', 'volume', 'told'), removal]), [
    'destroy volume told',
    'create volume told',
  ]);
  const toldRemoval = change('destroy', 'volume', 'again', Date.now() - 60_000);
  assert.deepEqual(await find([toldRemoval, change('destroy', 'network', 'n', Date.now() + 1)]), ['destroy network n']);
});
