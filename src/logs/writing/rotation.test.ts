import assert from 'node:assert/strict';
import { readdir, readFile, stat, writeFile } from 'node:fs/promises';
import { test } from 'node:test';
import { gunzipSync } from 'node:zlib';
import { ID, logFixture, readAll, writeAll } from '../log-fixture.js';

const line = (i: number): string => `line ${String(i).padStart(6, '0')}\n`;
const lines = (from: number, to: number): string =>
  Array.from({ length: to - from }, (_, i) => line(from + i)).join('');

test('a file is rotated before the record that finds it full', async (t) => {
  const { open, dir, path, readStopped } = await logFixture(t);
  const log = await open({ options: { 'max-size': '1k', 'max-file': '3' } });
  await writeAll(log, 'stdout', [Buffer.from(lines(0, 100))]);
  await log.close();
  assert.deepEqual((await readdir(dir)).sort(), [`${ID}-json.log`, `${ID}-json.log.1`, `${ID}-json.log.2`]);
  for (const old of [`${path}.1`, `${path}.2`]) {
    const { size } = await stat(old);
    const last = (await readFile(old, 'utf8')).trimEnd().split('\n').at(-1) ?? '';
    assert.ok(size >= 1000 && size - last.length - 1 < 1000, String(size));
    assert.equal((await stat(old)).mode & 0o777, 0o640);
  }
  const kept = (await readStopped()).toString();
  assert.ok(kept.length > 0 && lines(0, 100).endsWith(kept));
});

test('max-file 1 keeps only the newest file', async (t) => {
  const { open, dir, readStopped } = await logFixture(t);
  const log = await open({ options: { 'max-size': '1k' } });
  await writeAll(log, 'stdout', [Buffer.from(lines(0, 100))]);
  await log.close();
  assert.deepEqual(await readdir(dir), [`${ID}-json.log`]);
  const kept = (await readStopped()).toString();
  assert.ok(kept.length > 0 && lines(0, 100).endsWith(kept));
});

test('compressed files carry the time of their last record; tail and since go across them', async (t) => {
  const { open, dir, path, readStopped } = await logFixture(t);
  const log = await open({ options: { 'max-size': '100k', 'max-file': '5', compress: 'true' } });
  for (let i = 0; i < 3500; i += 10) {
    await writeAll(log, 'stdout', [Buffer.from(lines(i, i + 10))]);
    if (i % 500 === 0) await readAll(log, { tail: 1 });
  }
  assert.equal((await readAll(log)).toString(), lines(0, 3500));
  await log.close();
  const names = await readdir(dir);
  assert.ok(names.includes(`${ID}-json.log.1.gz`) && names.includes(`${ID}-json.log.2.gz`), names.join());
  assert.ok(!names.some((name) => name.endsWith('.tmp') || /\.\d$/.test(name)), names.join());
  const packed = await readFile(`${path}.1.gz`);
  const records = gunzipSync(packed).toString().trimEnd().split('\n');
  const lastTime = (JSON.parse(records.at(-1) ?? '') as { time: string }).time;
  assert.ok(packed.includes(`{"lastTime":"${lastTime}"}`));

  assert.equal((await readStopped()).toString(), lines(0, 3500));
  for (const tail of [1, 1000, 1800, 3499, 9999])
    assert.equal((await readStopped({ tail })).toString(), lines(Math.max(0, 3500 - tail), 3500), `tail ${tail}`);
  const stamped = (await readStopped({ timestamps: true })).toString().trimEnd().split('\n');
  for (const i of [10, 1234, 3400]) {
    const time = stamped[i]?.slice(0, 30) ?? '';
    const sinceNs = BigInt(Date.parse(time)) * 1_000_000n + BigInt(time.slice(23, 29));
    const expected = stamped.filter((entry) => entry.slice(0, 30) >= time).map((entry) => `${entry.slice(31)}\n`);
    assert.equal((await readStopped({ sinceNs })).toString(), expected.join(''), `since line ${i}`);
  }
  assert.equal((await readdir(dir)).length, names.length);
});

test('a compressed file that is damaged costs only what cannot be unpacked', async (t) => {
  const { open, path, readStopped, seen } = await logFixture(t);
  const log = await open({ options: { 'max-size': '200k', 'max-file': '3', compress: 'true' } });
  for (let i = 0; i < 5000; i += 100) await writeAll(log, 'stdout', [Buffer.from(lines(i, i + 100))]);
  await log.close();
  const packed = await readFile(`${path}.1.gz`);
  packed.fill(0x55, packed.length - 400, packed.length - 300);
  await writeFile(`${path}.1.gz`, packed);
  const kept = (await readStopped()).toString().trimEnd().split('\n');
  assert.ok(kept.includes('line 000000') && kept.includes('line 004999'));
  assert.equal(seen.failures.length, 1);
});
