import assert from 'node:assert/strict';
import { readdir } from 'node:fs/promises';
import { test } from 'node:test';
import { setImmediate } from 'node:timers/promises';
import type { ContainerLog } from '../../ports/logs.js';
import { ALL, collect, logFixture, readAll, seededRandom } from '../log-fixture.js';

const FOLLOW = { ...ALL, follow: true };

function* numbered(from: number, to: number): Generator<Buffer> {
  const random = seededRandom(from + 1);
  for (let i = from; i < to;) {
    const next = Math.min(to, i + 1 + Math.floor(random() * 400));
    let text = '';
    for (; i < next; i++) text += `line ${i} ${'x'.repeat(i % 90)}\n`;
    yield Buffer.from(text);
  }
}

async function print(log: ContainerLog, from: number, to: number): Promise<void> {
  for (const chunk of numbered(from, to)) {
    if (!log.write('stdout', chunk)) await new Promise<void>((resolve) => log.onceDrained(resolve));
    await setImmediate();
  }
}

const text = (from: number, to: number): string => Buffer.concat([...numbered(from, to)]).toString();

test('a follower gets what is there and what comes, and ends with the log', async (t) => {
  const { open } = await logFixture(t);
  const log = await open();
  await print(log, 0, 1000);
  const following = collect(log.read(FOLLOW));
  const tailing = collect(log.read({ ...FOLLOW, tail: 0 }));
  await readAll(log);
  await print(log, 1000, 2000);
  log.write('stdout', Buffer.from('unfinished'));
  await log.close();
  assert.equal(
    (await following).toString(),
    `${text(0, 2000).replace(text(1000, 2000), '')}${text(1000, 2000)}unfinished`,
  );
  assert.ok((await tailing).toString().endsWith('unfinished'));
});

test('twenty followers across rotation: no loss, no repeat', async (t) => {
  for (const options of [
    { 'max-size': '20k' },
    { 'max-size': '50k', 'max-file': '3' },
    { 'max-size': '50k', 'max-file': '3', compress: 'true' },
  ]) {
    const { open } = await logFixture(t);
    const log = await open({ options });
    await print(log, 0, 100);
    const followers = Array.from({ length: 20 }, () => collect(log.read(FOLLOW)));
    await readAll(log);
    await print(log, 100, 8000);
    await log.close();
    const expected = text(0, 100) + text(100, 8000);
    for (const follower of followers) assert.ok((await follower).toString() === expected, JSON.stringify(options));
  }
});

test('followers with different wishes share nothing that they should not', async (t) => {
  const { open } = await logFixture(t);
  const log = await open();
  const both = collect(log.read(FOLLOW));
  const errors = collect(log.read({ ...FOLLOW, stdout: false }));
  const framed = collect(log.read({ ...FOLLOW, multiplexed: true, stderr: false }));
  for (let i = 0; i < 500; i++) {
    log.write(i % 2 ? 'stderr' : 'stdout', Buffer.from(`${i}\n`));
    if (i % 10 === 0) await setImmediate();
  }
  await log.close();
  const all = Array.from({ length: 500 }, (_, i) => `${i}\n`);
  assert.equal((await both).toString(), all.join(''));
  assert.equal((await errors).toString(), all.filter((_, i) => i % 2).join(''));
  assert.equal(
    (await framed).length,
    all.filter((_, i) => i % 2 === 0).reduce((sum, line) => sum + line.length + 8, 0),
  );
});

test('return settles a pending read and frees the files', async (t) => {
  const { open } = await logFixture(t);
  const log = await open({ options: { 'max-size': '1k', 'max-file': '2' } });
  log.write('stdout', Buffer.from('x\n'));
  const before = (await readdir('/proc/self/fd')).length;
  const reader = log.read(FOLLOW);
  assert.equal((await reader.next()).value?.toString(), 'x\n');
  const pending = reader.next();
  await setImmediate();
  await reader.return?.();
  assert.equal((await pending).done, true);
  assert.equal((await reader.next()).done, true);
  for (let i = 0; i < 50; i++) await print(log, i * 10, i * 10 + 10);
  await readAll(log);
  assert.equal((await readdir('/proc/self/fd')).length, before);
  await log.close();
});

test('a follower that does not read does not hold deleted files for ever', async (t) => {
  const { open, seen } = await logFixture(t);
  const log = await open({ options: { 'max-size': '4m', 'max-file': '2' } });
  const reader = log.read(FOLLOW);
  log.write('stdout', Buffer.from('first\n'));
  assert.equal((await reader.next()).value?.toString(), 'first\n');
  const chunk = Buffer.from(`${'y'.repeat(999)}\n`.repeat(1000));
  for (let i = 0; i < 90; i++)
    if (!log.write('stdout', chunk)) await new Promise<void>((resolve) => log.onceDrained(resolve));
  await readAll(log, { tail: 1 });
  assert.ok(seen.damaged > 64 << 20);
  await log.close();
  let rest = 0;
  for await (const piece of reader) rest += piece.length;
  assert.ok(rest > 0 && rest < 20e6, String(rest));
});

test('twenty starts and stops of the writer lose nothing', async (t) => {
  const { open, readStopped } = await logFixture(t);
  let expected = '';
  for (let i = 0; i < 20; i++) {
    const log = await open({ options: { 'max-size': '1m', 'max-file': '9', compress: 'true' } });
    await print(log, i * 500, i * 500 + 500);
    await log.close();
    expected += text(i * 500, i * 500 + 500);
  }
  assert.ok((await readStopped()).toString() === expected);
});
