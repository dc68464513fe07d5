import assert from 'node:assert/strict';
import { appendFile, readFile, truncate } from 'node:fs/promises';
import { test } from 'node:test';
import { ALL, collect, logFixture, readAll, seededRandom, writeAll } from '../log-fixture.js';

test('records are a message between its lengths', async (t) => {
  const { open, path } = await logFixture(t, 'local');
  const log = await open();
  assert.equal(log.path, '');
  log.write('stderr', Buffer.from('hi\n'));
  await log.close();
  const file = await readFile(path);
  assert.equal(file.readUInt32BE(0), file.length - 8);
  assert.equal(file.readUInt32BE(file.length - 4), file.length - 8);
  assert.equal(file.toString('latin1', 4, 13), '\n\u0006stderr\u0010');
  assert.equal(file.toString('latin1', file.length - 8, file.length - 4), '\u001a\u0002hi');
  assert.equal((await readAll(log, { multiplexed: true })).toString('latin1'), '\u0002\0\0\0\0\0\0\u0003hi\n');
  const stamp = (await readAll(log, { timestamps: true, details: true })).toString();
  assert.match(stamp, /^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{9}Z {2}hi\n$/);
  assert.ok(Math.abs(Date.parse(stamp.slice(0, 30)) - Date.now()) < 60_000);
});

test('binary output in any chunks comes back byte for byte, also across rotation', async (t) => {
  const { open, readStopped } = await logFixture(t, 'local');
  const random = seededRandom(3);
  const bytes = Buffer.from(Array.from({ length: 400_000 }, () => (random() < 0.01 ? 10 : Math.floor(random() * 256))));
  bytes.fill(0x41, 1000, 60_000);
  const log = await open({ options: { 'max-size': '100k', 'max-file': '9', compress: 'true' } });
  const following = collect(log.read({ ...ALL, follow: true }));
  for (let at = 0; at < bytes.length;) {
    const size = 1 + Math.floor(random() ** 4 * 70_000);
    await writeAll(log, 'stdout', [bytes.subarray(at, at + size)]);
    at += size;
  }
  await log.close();
  assert.ok(bytes.equals(await readStopped()));
  assert.ok(bytes.equals(await following));
});

test('tail and since', async (t) => {
  const { open } = await logFixture(t, 'local');
  const log = await open();
  const lines = Array.from({ length: 30_000 }, (_, i) => `entry ${i}\n`);
  for (let i = 0; i < lines.length; i += 100) {
    await writeAll(log, 'stdout', [Buffer.from(lines.slice(i, i + 100).join(''))]);
    if (i % 3000 === 0) await readAll(log, { tail: 1 });
  }
  for (const tail of [0, 1, 25_000, 40_000])
    assert.equal((await readAll(log, { tail })).toString(), lines.slice(Math.max(0, lines.length - tail)).join(''));
  const stamped = (await readAll(log, { timestamps: true })).toString().trimEnd().split('\n');
  const time = stamped[20_050]?.slice(0, 30) ?? '';
  const sinceNs = BigInt(Date.parse(time)) * 1_000_000n + BigInt(time.slice(23, 29));
  const first = stamped.findIndex((line) => line.startsWith(time));
  assert.equal((await readAll(log, { sinceNs })).toString(), lines.slice(first).join(''));
  const untilCount = stamped.filter((line) => line.slice(0, 30) <= time).length;
  assert.equal((await readAll(log, { untilNs: sinceNs })).toString(), lines.slice(0, untilCount).join(''));
  await log.close();
});

test('a torn tail is cut off', async (t) => {
  const { open, path } = await logFixture(t, 'local');
  const log = await open();
  await writeAll(log, 'stdout', [Buffer.from('one\ntwo\nthree\n')]);
  await log.close();
  const { length } = await readFile(path);
  await truncate(path, length - 3);
  let again = await open();
  again.write('stdout', Buffer.from('four\n'));
  assert.equal((await readAll(again)).toString(), 'one\ntwo\nfour\n');
  await again.close();
  await appendFile(path, Buffer.alloc(300_000));
  again = await open();
  assert.equal((await readAll(again, { tail: 2 })).toString(), 'two\nfour\n');
  await again.close();
});
