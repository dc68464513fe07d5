import assert from 'node:assert/strict';
import { mkdir, mkdtemp, readdir, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { test } from 'node:test';
import { setImmediate as turn } from 'node:timers/promises';
import type { ContainerRecord } from './container.record.js';
import { ContainerRecords, type RecordIo } from './records.js';

const recordOf = (name: string): ContainerRecord => ({ id: 'one', name }) as ContainerRecord;

/** Writes that end when they are told to. */
function heldWrites(): { readonly io: RecordIo; readonly written: string[]; readonly finish: () => void } {
  const written: string[] = [];
  let finish = (): void => undefined;
  const write = (what: string, value: unknown): Promise<void> => {
    written.push(`${(value as ContainerRecord).name} ${what}`);
    return new Promise((resolve) => (finish = resolve));
  };
  const io: RecordIo = {
    write: (_, value) => write('durably', value),
    identityOf: async () => 'one',
    writeForRun: (_path, _identity, value) => write('for the run', value),
    read: async () => undefined,
    reader: () => async () => undefined,
    readForRun: async () => undefined,
    urgent: (work) => work(),
    failed: (_, error) => assert.fail(String(error)),
  };
  return { io, written, finish: () => finish() };
}

test('what is written together survives what the most demanding of its writers asked for', async () => {
  const { io, written, finish } = heldWrites();
  const records = new ContainerRecords('/nowhere', '/nowhere', io);
  const all = [records.saveForRun(recordOf('alone'))];
  await turn();
  // These come while the first one is being written.
  all.push(records.save(recordOf('older')), records.saveForRun(recordOf('newer')));
  finish();
  await turn();
  finish();
  await Promise.all(all);
  assert.deepEqual(written, ['alone for the run', 'newer durably']);
});

test('what was written for the run only is durable soon, but not after something newer', async (t) => {
  t.mock.timers.enable({ apis: ['setTimeout'] });
  const { io, written, finish } = heldWrites();
  const records = new ContainerRecords('/nowhere', '/nowhere', io);
  const done = async (write: Promise<void>): Promise<void> => {
    await turn();
    finish();
    await write;
  };
  await done(records.saveForRunFirst(recordOf('first')));
  t.mock.timers.tick(100);
  await done(records.written('one'));
  await done(records.saveForRun(recordOf('second')));
  const third = records.save(recordOf('third'));
  const closed = records.close();
  await done(third);
  await closed;
  t.mock.timers.tick(100);
  await records.written('one');
  assert.deepEqual(written, ['first for the run', 'first durably', 'second for the run', 'third durably']);
});

test('an urgent end becomes durable from the reserve, and not at all when its container is removed', async (t) => {
  t.mock.timers.enable({ apis: ['setTimeout'] });
  const { io, written, finish } = heldWrites();
  const urgent = (work: () => Promise<void>): Promise<void> => (written.push('urgently'), work());
  const root = await mkdtemp(join(tmpdir(), 'records-'));
  t.after(() => rm(root, { recursive: true }));
  const records = new ContainerRecords(root, root, { ...io, urgent: urgent as RecordIo['urgent'] });
  for (const isRemoved of [false, true]) {
    const ended = records.saveForRunFirst(recordOf('ended'), true);
    await turn();
    finish();
    await ended;
    if (isRemoved) await records.remove('one');
    t.mock.timers.tick(100);
    await turn();
    finish();
    await records.written('one');
  }
  assert.deepEqual(written, ['ended for the run', 'urgently', 'ended durably', 'ended for the run']);
});

test('what is written for the run counts until the container is taken away', async (t) => {
  const root = await mkdtemp(join(tmpdir(), 'records-'));
  t.after(() => rm(root, { recursive: true }));
  const writeForRun = (path: string): Promise<void> => writeFile(path, '');
  const records = new ContainerRecords(root, root, { ...heldWrites().io, writeForRun });
  await records.createDir('one');
  await records.saveForRun(recordOf('ended'));
  const inTheWay = join(root, '.removed-one', 'file');
  await mkdir(dirname(inTheWay));
  await writeFile(inTheWay, '');
  await assert.rejects(records.retire('one'), /ENOTEMPTY/);
  assert.deepEqual((await readdir(root)).toSorted(), ['.removed-one', 'one', 'one.json']);
  await rm(inTheWay);
  await records.remove('one');
  assert.deepEqual(await readdir(root), []);
});

test('all who wait for one write hear that it has failed, also those whose record came with a later one', async (t) => {
  // The timer never fires: later tries are shown below.
  t.mock.timers.enable({ apis: ['setTimeout'] });
  const { io, written, finish } = heldWrites();
  const full = Object.assign(new Error('full'), { code: 'ENOSPC' });
  const records = new ContainerRecords('/nowhere', '/nowhere', { ...io, write: () => Promise.reject(full) });
  const first = records.saveForRun(recordOf('first'));
  await turn();
  const outcomes = Promise.allSettled([records.save(recordOf('second')), records.save(recordOf('third'))]);
  finish();
  await first;
  assert.deepEqual(
    (await outcomes).map(({ status }) => status),
    ['rejected', 'rejected'],
  );
  const next = records.saveForRun(recordOf('fourth'));
  await turn();
  finish();
  await next;
  assert.deepEqual(written, ['first for the run', 'fourth for the run']);
});

test('what could not be made durable is, when there is room again', async (t) => {
  t.mock.timers.enable({ apis: ['setTimeout'] });
  const { io, written, finish } = heldWrites();
  let isFull = true;
  const records = new ContainerRecords('/nowhere', '/nowhere', {
    ...io,
    write: (...args) => (isFull ? Promise.reject(new Error('full')) : io.write(...args)),
  });
  const ahead = records.saveForRun(recordOf('ended'));
  await turn();
  finish();
  await ahead;
  await assert.rejects(records.save(recordOf('ended'), true), /full/);
  isFull = false;
  t.mock.timers.tick(5_000);
  await turn();
  finish();
  await records.written('one');
  assert.deepEqual(written, ['ended for the run', 'ended durably']);
});

test('what is written for the run names the durable record before it, which is asked for once', async () => {
  let version = 1;
  let asked = 0;
  const named: string[] = [];
  const records = new ContainerRecords('/nowhere', '/nowhere', {
    ...heldWrites().io,
    write: async () => void version++,
    identityOf: async () => {
      asked++;
      return `version ${version}`;
    },
    writeForRun: async (_path, identity) => void named.push(identity),
  });
  for (const save of ['saveForRun', 'saveForRun', 'save', 'saveForRun'] as const) await records[save](recordOf('one'));
  assert.deepEqual([named, asked], [['version 1', 'version 1', 'version 2'], 2]);
});
