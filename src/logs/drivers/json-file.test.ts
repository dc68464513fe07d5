import assert from 'node:assert/strict';
import { appendFile, readFile, stat, writeFile } from 'node:fs/promises';
import { test } from 'node:test';
import type { LogReadOptions } from '../../ports/logs.js';
import { logFixture, readAll, seededRandom, writeAll } from '../log-fixture.js';

const TIME = '\\d{4}-\\d\\d-\\d\\dT\\d\\d:\\d\\d:\\d\\d(?:\\.\\d{0,8}[1-9])?Z';

test('records have the members of the known format in its order', async (t) => {
  const { open, path } = await logFixture(t);
  const log = await open();
  assert.equal(log.path, path);
  log.write('stdout', Buffer.from('hello\n'));
  log.write('stderr', Buffer.from('wörld\n'));
  await log.close();
  const text = await readFile(path, 'utf8');
  assert.match(
    text,
    new RegExp(
      `^\\{"log":"hello\\\\n","stream":"stdout","time":"${TIME}"\\}\\n\\{"log":"wörld\\\\n",` +
        `"stream":"stderr","time":"${TIME}"\\}\\n$`,
    ),
  );
  assert.equal((await stat(path)).mode & 0o777, 0o640);
});

test('special characters are written as Go writes them, and read back as they were', async (t) => {
  const { open, path } = await logFixture(t);
  const log = await open();
  const line = '\u0000\u0001\t\r\b\f"\\/<>&\u001f\u007f é € 😀 \u2028\u2029 ';
  log.write(
    'stdout',
    Buffer.concat([Buffer.from(line), Buffer.from([0xff, 0xc0, 0x80, 0xe2, 0x82, 0xed, 0xa0, 0x80, 0xf5, 0x0a])]),
  );
  await log.close();
  const text = await readFile(path, 'utf8');
  const DELETE = '\u007f';
  const expected =
    String.raw`{"log":"\u0000\u0001\u0009\r\u0008\u000c\"\\/\u003c\u003e\u0026\u001f${DELETE} é € 😀 \u2028\u2029 ` +
    String.raw`${String.raw`\ufffd`.repeat(9)}\n",`;
  assert.equal(text.slice(0, expected.length), expected);
  assert.equal((await readAll(await open())).toString(), `${line}${'\ufffd'.repeat(9)}\n`);
});

test('attributes come between stream and time, sorted, and are shown as details', async (t) => {
  const { open, path } = await logFixture(t);
  const log = await open({
    options: { labels: 'zone,missing', 'labels-regex': '^app', env: 'A', 'env-regex': '^B', tag: '{{.Name}}/{{.ID}}' },
    labels: { zone: 'eu & <us>', 'app.x': 'é', other: 'no' },
    env: ['A=1', 'BB=x=y', 'C=3'],
  });
  log.write('stdout', Buffer.from('one\ntwo\n'));
  await log.close();
  const zone = String.raw`eu \u0026 \u003cus\u003e`;
  const attrs = `"attrs":{"A":"1","BB":"x=y","app.x":"é","tag":"web/cccccccccccc","zone":"${zone}"}`;
  assert.ok((await readFile(path, 'utf8')).startsWith(String.raw`{"log":"one\n","stream":"stdout",${attrs},"time":"`));
  const details = 'A=1,BB=x%3Dy,app.x=%C3%A9,tag=web%2Fcccccccccccc,zone=eu+%26+%3Cus%3E';
  assert.equal((await readAll(log, { details: true })).toString(), `${details} one\n${details} two\n`);
  assert.equal((await readAll(log)).toString(), 'one\ntwo\n');
});

test('without attributes details are one space', async (t) => {
  const { open } = await logFixture(t);
  const log = await open();
  log.write('stdout', Buffer.from('x\n'));
  assert.equal((await readAll(log, { details: true })).toString(), ' x\n');
  await log.close();
});

test('lines over 16 KiB become pieces with one time, only the last has the newline', async (t) => {
  const { open, path } = await logFixture(t);
  const log = await open();
  for (const part of [
    'a'.repeat(10_000),
    'b'.repeat(10_000),
    'c'.repeat(20_000),
    '\nshort\n',
    'd'.repeat(16_384),
    '\nend',
  ])
    log.write('stdout', Buffer.from(part));
  await log.close();
  const records = (await readFile(path, 'utf8'))
    .trimEnd()
    .split('\n')
    .map((line) => JSON.parse(line) as { log: string; time: string });
  assert.deepEqual(
    records.map(({ log }) => [log.length, log.endsWith('\n')]),
    [
      [16_384, false],
      [16_384, false],
      [7233, true],
      [6, true],
      [16_384, false],
      [1, true],
      [3, false],
    ],
  );
  assert.equal(new Set(records.slice(0, 3).map(({ time }) => time)).size, 1);
  assert.equal(
    records.map(({ log }) => log).join(''),
    `${'a'.repeat(10_000)}${'b'.repeat(10_000)}${'c'.repeat(20_000)}\nshort\n${'d'.repeat(16_384)}\nend`,
  );
});

test('frames, timestamps and stream selection', async (t) => {
  const { open, path } = await logFixture(t);
  const log = await open();
  log.write('stdout', Buffer.from('out\n'));
  log.write('stderr', Buffer.from('err!\n'));
  await log.close();
  assert.deepEqual(
    await readAll(log, { multiplexed: true }),
    Buffer.from('\u0001\0\0\0\0\0\0\u0004out\n\u0002\0\0\0\0\0\0\u0005err!\n'),
  );
  assert.equal((await readAll(log, { stdout: false })).toString(), 'err!\n');
  const stamped = (await readAll(log, { timestamps: true, details: true, multiplexed: true })).subarray(8).toString();
  assert.match(stamped, /^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{9}Z {2}out\n/);
  const [first] = (await readFile(path, 'utf8')).split('\n');
  const { time } = JSON.parse(first ?? '') as { time: string };
  assert.equal(stamped.slice(0, 30), `${time.slice(0, -1)}${time.includes('.') ? '' : '.'}`.padEnd(29, '0') + 'Z');
});

test('a torn tail is cut off when the log is opened, and ignored by readers until then', async (t) => {
  const { open, path, readStopped, seen } = await logFixture(t);
  const log = await open();
  log.write('stdout', Buffer.from('whole\n'));
  await log.close();
  await appendFile(path, '{"log":"torn');
  assert.equal((await readStopped()).toString(), 'whole\n');
  const again = await open();
  again.write('stdout', Buffer.from('next\n'));
  assert.equal((await readAll(again)).toString(), 'whole\nnext\n');
  await again.close();
  assert.deepEqual(seen.failures, ['cut off 12 bytes of an unfinished record']);
  assert.equal((await readFile(path, 'utf8')).split('\n').length, 3);
});

test('nothing there reads as empty', async (t) => {
  const { readStopped } = await logFixture(t);
  assert.equal((await readStopped({ tail: 5, sinceNs: 1n })).length, 0);
});

test('tail, since and until over all records', async (t) => {
  const { path, readStopped } = await logFixture(t);
  const lines = Array.from(
    { length: 10_000 },
    (_, i) =>
      `{"log":"line ${i}\\n","stream":"${i % 3 ? 'stdout' : 'stderr'}",` +
      `"time":"${new Date(1_700_000_000_000 + i * 10).toISOString()}"}\n`,
  );
  await writeFile(path, lines.join(''));
  const at = (i: number): bigint => BigInt(1_700_000_000_000 + i * 10) * 1_000_000n;
  const numbers = async (options: Partial<LogReadOptions>): Promise<number[]> =>
    ((await readStopped(options)).toString().match(/\d+/g) ?? []).map(Number);
  const range = (from: number, to: number): number[] => Array.from({ length: to - from }, (_, i) => from + i);
  assert.deepEqual(await numbers({}), range(0, 10_000));
  for (const tail of [0, 1, 2, 999, 9999, 10_000, 12_000])
    assert.deepEqual(await numbers({ tail }), range(Math.max(0, 10_000 - tail), 10_000), `tail ${tail}`);
  for (const i of [0, 1, 7, 4999, 9998, 9999]) {
    assert.deepEqual(await numbers({ sinceNs: at(i) }), range(i, 10_000), `since ${i}`);
    assert.deepEqual(await numbers({ untilNs: at(i) }), range(0, i + 1), `until ${i}`);
    assert.deepEqual(await numbers({ sinceNs: at(i) + 1n }), range(i + 1, 10_000), `just after ${i}`);
  }
  assert.deepEqual(await numbers({ sinceNs: at(100), untilNs: at(102) }), [100, 101, 102]);
  assert.deepEqual(await numbers({ sinceNs: at(9990), tail: 5 }), range(9995, 10_000));
  assert.deepEqual(await numbers({ sinceNs: at(9998), tail: 5 }), [9998, 9999]);
  assert.deepEqual(await numbers({ tail: 4, stdout: false }), [9996, 9999]);
});

test('records of any tails in any order are shown with their own time, stream and attributes', async (t) => {
  const { path, readStopped } = await logFixture(t);
  const random = seededRandom(3);
  const pick = <T>(values: readonly T[]): T => values[Math.floor(random() ** 2 * values.length)] as T;
  const records = Array.from({ length: 2000 }, (_, i) => ({
    log: `${i}${pick(['', '"', ' abc', ' é'])}\n`,
    stream: pick(['stdout', 'stderr'] as const),
    // These times differ in their last digit, or in their length.
    time: `2026-01-02T03:04:05.${pick(['123456781', '123456782', '12345', '1234', '1'])}Z`,
    attrs: pick([{}, { a: '1' }, { a: '2' }]),
    isUsual: random() < 0.9,
  }));
  const lines = records.map(({ log, stream, time, attrs, isUsual }) => {
    const shown = Object.keys(attrs).length === 0 ? {} : { attrs };
    return `${JSON.stringify(isUsual ? { log, stream, ...shown, time } : { time, ...shown, stream, log })}\n`;
  });
  await writeFile(path, lines.join(''));
  for (const wanted of [{}, { stdout: false }, { stderr: false }]) {
    const shown = records
      .filter(({ stream }) => (wanted as Partial<Record<typeof stream, boolean>>)[stream] !== false)
      .map(({ log, time, attrs }) => {
        const details = Object.entries(attrs).map(([name, value]) => `${name}=${value}`);
        return `${time.slice(0, -1).padEnd(29, '0')}Z ${details.join()} ${log}`;
      });
    assert.equal((await readStopped({ timestamps: true, details: true, ...wanted })).toString(), shown.join(''));
  }
});

test('any output in any chunks comes back as it was, but for what is no UTF-8', async (t) => {
  const { open, readStopped } = await logFixture(t);
  const random = seededRandom(7);
  const bytes = Buffer.from(
    Array.from({ length: 300_000 }, () =>
      random() < 0.02 ? 10 : random() < 0.9 ? 32 + Math.floor(random() * 95) : Math.floor(random() * 128),
    ),
  );
  const chunks: Buffer[] = [];
  for (let at = 0; at < bytes.length;) {
    const size = 1 + Math.floor(random() ** 4 * 70_000);
    chunks.push(bytes.subarray(at, at + size));
    at += size;
  }
  const log = await open();
  await writeAll(log, 'stdout', chunks);
  await log.close();
  assert.ok(bytes.equals(await readStopped()));
});
