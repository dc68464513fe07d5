import assert from 'node:assert/strict';
import { readdirSync, readFileSync } from 'node:fs';
import { appendFile, mkdtemp, readdir, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test, type TestContext } from 'node:test';
import { setImmediate, setTimeout } from 'node:timers/promises';
import type { EventItem, EventLog, EventSubscription } from '../ports/events.js';
import { wallClockNs } from '../sys/process/wall-clock.js';
import { EventFileReader } from './event-files.js';
import { openEventLog } from './event-log.js';

const LIVE: EventSubscription = { sinceNs: undefined, untilNs: undefined, filter: () => true };

async function fixture(t: TestContext) {
  const dir = await mkdtemp(join(tmpdir(), 'events-'));
  t.after(() => rm(dir, { recursive: true, force: true }));
  const failures: unknown[] = [];
  return {
    dir,
    failures,
    open: (limits = {}) => openEventLog({ dir, onFailure: (error) => failures.push(error), ...limits }),
  };
}

const emit = (log: EventLog, i: number): void =>
  log.emit('container', 'start', `id${i}`, { name: `c${i}`, image: 'busybox' });

/** Returns what a reader of the past gets: ids of events, and gaps. */
async function past(
  log: EventLog,
  changes: Partial<EventSubscription> = { sinceNs: 0n },
): Promise<(string | number)[]> {
  const got: (string | number)[] = [];
  for await (const items of log.subscribe({ ...LIVE, untilNs: wallClockNs(), ...changes }))
    got.push(...items.map(idOf));
  return got;
}

const idOf = (item: EventItem): string | number => (item.kind === 'event' ? item.event.Actor.ID : item.missed);
const ids = (from: number, to: number): string[] => Array.from({ length: to - from }, (_, i) => `id${from + i}`);

test('events are shown as the API shows them, with increasing times', async (t) => {
  const { open } = await fixture(t);
  const log = await open();
  const reader = log.subscribe(LIVE);
  log.emit('container', 'die', 'abc', { name: 'web', image: 'busybox', exitCode: '0' });
  log.emit('image', 'tag', 'sha256:1', { name: 'x' });
  log.emit('network', 'create', 'n', { type: 'bridge', name: 'net' });
  const { value } = (await reader.next()) as { value: readonly EventItem[] };
  const shown = value.map((item) => (item.kind === 'event' ? item : undefined));
  const [first, second, third] = shown.map((item) => JSON.parse(item?.json ?? '') as Record<string, unknown>);
  const [a = 0n, b = 0n] = shown.map((item) => item?.timeNs);
  assert.ok(a < b);
  assert.equal(
    shown[0]?.json,
    `{"status":"die","id":"abc","from":"busybox","Type":"container","Action":"die",` +
      `"Actor":{"ID":"abc","Attributes":{"exitCode":"0","image":"busybox","name":"web"}},` +
      `"scope":"local","time":${a / 1_000_000_000n},"timeNano":${a}}`,
  );
  assert.ok(Math.abs(Number(first?.['time']) - Date.now() / 1000) < 10);
  assert.deepEqual([second?.['status'], second?.['id'], second?.['from']], ['tag', 'sha256:1', undefined]);
  assert.equal('status' in (third ?? {}), false);
  await log.close();
  assert.equal((await reader.next()).done, true);
});

test('nobody sees an event before the disk has it, and whoever asks for what was waits for it', async (t) => {
  const { dir, open } = await fixture(t);
  const log = await open();
  assert.equal(log.recoveredNs, undefined);
  const reader = log.subscribe(LIVE);
  const onDisk = (): string =>
    readdirSync(dir)
      .map((name) => readFileSync(join(dir, name), 'utf8'))
      .join('');
  for (let i = 0; i < 5; i++) {
    emit(log, i);
    const before = past(log, { sinceNs: 0n });
    const { value } = await reader.next();
    const lines = onDisk().split('\n').length - 1;
    assert.deepEqual([value?.map(idOf), lines], [[`id${i}`], i + 1]);
    assert.deepEqual(await before, ids(0, i + 1));
  }
  emit(log, 5);
  await log.written();
  assert.match(onDisk(), /id5/);
  const last = (await reader.next()).value?.at(-1);
  await log.close();
  const next = await open();
  emit(next, 6);
  assert.equal(next.recoveredNs, last?.kind === 'event' && last.timeNs);
  await next.close();
});

test('a new subscriber without since sees only what comes', async (t) => {
  const { open } = await fixture(t);
  const log = await open();
  emit(log, 0);
  const reader = log.subscribe({ ...LIVE, filter: (event) => event.Actor.ID !== 'id2' });
  for (let i = 1; i < 4; i++) emit(log, i);
  assert.deepEqual((await reader.next()).value?.map(idOf), ['id1', 'id3']);
  const pending = reader.next();
  await reader.return?.();
  assert.equal((await pending).done, true);
  await log.close();
});

test('since and until select the past, also after a restart', async (t) => {
  const { open } = await fixture(t);
  let log = await open({ fileBytes: 2000 });
  const times: bigint[] = [];
  const watcher = log.subscribe(LIVE);
  for (let i = 0; i < 50; i++) {
    emit(log, i);
    for (const item of (await watcher.next()).value ?? []) if (item.kind === 'event') times.push(item.timeNs);
  }
  for (let round = 0; round < 2; round++) {
    assert.deepEqual(await past(log), ids(0, 50));
    assert.deepEqual(await past(log, { sinceNs: times[20] }), ids(20, 50));
    assert.deepEqual(await past(log, { sinceNs: times[20], untilNs: times[22] }), ids(20, 23));
    assert.deepEqual(await past(log, { untilNs: times[2] }), ids(0, 3));
    assert.deepEqual(await past(log, { sinceNs: (times[49] ?? 0n) + 1n }), []);
    await log.close();
    log = await open({ fileBytes: 2000 });
  }
  emit(log, 50);
  assert.deepEqual(await past(log), ids(0, 51));
  await log.close();
});

test('a subscription ends at its time', async (t) => {
  const { open } = await fixture(t);
  const log = await open();
  const started = performance.now();
  const ending = past(log, { untilNs: wallClockNs() + 60_000_000n });
  emit(log, 1);
  assert.deepEqual(await ending, ['id1']);
  assert.ok(performance.now() - started > 55);
  await log.close();
});

test('a slow reader reads on from the disk and misses nothing; past what is kept it is told how much', async (t) => {
  const { open } = await fixture(t);
  const log = await open({ fileBytes: 20_000, totalBytes: 10_000_000 });
  const slow = log.subscribe(LIVE);
  const fast = log.subscribe(LIVE);
  let seenByFast = 0;
  for (let i = 0; i < 10_000; i++) {
    emit(log, i);
    if (i % 100 === 0) {
      while (seenByFast <= i) seenByFast += (await fast.next()).value?.length ?? 0;
      await setImmediate();
    }
  }
  const got: (string | number)[] = [];
  while (got.length < 10_000) got.push(...((await slow.next()).value ?? []).map(idOf));
  assert.deepEqual(got, ids(0, 10_000));
  assert.ok(seenByFast > 9_000);
  await log.close();

  const other = await fixture(t);
  const small = await other.open({ fileBytes: 5_000, totalBytes: 20_000 });
  const late = small.subscribe(LIVE);
  for (let i = 0; i < 5_000; i++) {
    emit(small, i);
    if (i % 50 === 0) await setImmediate();
  }
  await small.close();
  const rest: (string | number)[] = [];
  for await (const items of late) rest.push(...items.map(idOf));
  const [missed] = rest;
  assert.ok(typeof missed === 'number' && missed > 3_000, String(missed));
  assert.deepEqual(rest.slice(1), ids(missed, 5_000));

  const again = await other.open();
  const after = await past(again, { sinceNs: 1n });
  assert.ok(typeof after[0] === 'number');
  assert.deepEqual(after.slice(1), ids(after[0], 5_000));
  assert.equal(typeof (await past(again))[0], 'string');
  await again.close();
});

test('a reader that goes on in memory misses nothing of what leaves it meanwhile', async (t) => {
  const { open } = await fixture(t);
  const log = await open();
  const half = 2000;
  for (let i = 0; i < half; i++) emit(log, i);
  await log.written();
  const slow = t.mock.method(EventFileReader.prototype, 'close', async function (this: EventFileReader) {
    slow.mock.restore();
    for (let i = half; i < 2 * half; i++) emit(log, i);
    await log.written();
    await this.close();
  });
  const got: (string | number)[] = [];
  for await (const items of log.subscribe({ ...LIVE, after: 0 })) {
    got.push(...items.map(idOf));
    if (got.at(-1) === `id${2 * half - 1}`) break;
  }
  assert.deepEqual(got, ids(0, 2 * half));
  assert.equal(slow.mock.callCount(), 1);
  await log.close();
});

test('files are bounded, a torn or damaged line costs only itself', async (t) => {
  const { dir, open } = await fixture(t);
  let log = await open({ fileBytes: 5_000, totalBytes: 20_000 });
  for (let i = 0; i < 1_000; i++) {
    emit(log, i);
    if (i % 10 === 0) await past(log, { sinceNs: wallClockNs() });
  }
  await log.close();
  const names = (await readdir(dir)).sort();
  assert.ok(names.length > 2 && names.length < 7, names.join());
  const newest = join(dir, names.at(-1) ?? '');
  const lines = (await readFile(newest, 'utf8')).split('\n');
  lines[1] = `${lines[1]?.slice(0, 30)}\0${lines[1]?.slice(31)}`;
  await writeFile(newest, lines.join('\n'));
  await appendFile(newest, '99999 {"Type":"cont');
  log = await open();
  emit(log, 1_000);
  const got = await past(log);
  assert.equal(got.at(-1), 'id1000');
  assert.equal(got.filter((item) => typeof item === 'number').join(), '1');
  const [first] = got;
  assert.equal(got.length, 1_001 - Number(String(first).slice(2)));
  await log.close();
});

test('a disk that takes nothing costs only the past', async (t) => {
  const { dir, open, failures } = await fixture(t);
  const log = await open();
  await rm(dir, { recursive: true });
  const reader = log.subscribe(LIVE);
  emit(log, 0);
  assert.deepEqual((await reader.next()).value?.map(idOf), ['id0']);
  await setTimeout(20);
  assert.ok(failures.length > 0);
  await log.close();
});

test('events with large labels are few in memory, and in what a reader gets at once', async (t) => {
  const { open } = await fixture(t);
  const log = await open();
  const { recent } = log as unknown as { readonly recent: readonly unknown[] };
  const reader = log.subscribe(LIVE);
  const label = 'x'.repeat(1 << 20);
  for (let i = 0; i < 20; i++) {
    log.emit('container', 'exec_die', `id${i}`, { label });
    await log.written();
  }
  assert.ok(recent.length > 0 && recent.length < 9, String(recent.length));
  const got: (string | number)[] = [];
  while (got.length < 20) {
    const { value } = (await reader.next()) as { value: readonly EventItem[] };
    got.push(...value.map(idOf));
    assert.ok(value.length < 5, String(value.length));
  }
  assert.deepEqual(got, ids(0, 20));
  await reader.return?.();
  await log.close();
});
