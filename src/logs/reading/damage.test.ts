import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { readFile, writeFile } from 'node:fs/promises';
import { test, type TestContext } from 'node:test';
import { FrameDecoder } from '../attach/stdcopy.js';
import { logFixture, seededRandom, writeAll } from '../log-fixture.js';

const COUNT = 400;
const entry = (i: number): string => `entry ${i} "quoted" \\ é ${'z'.repeat((i * 7) % 200)}`;

/** Damages a log of numbered records in many ways; every record that is still whole must come out, in order. */
async function fuzz(t: TestContext, driverName: string, recordsOf: (file: Buffer) => Buffer[]): Promise<void> {
  const { open, path, readStopped, seen } = await logFixture(t, driverName);
  const log = await open();
  await writeAll(
    log,
    'stdout',
    Array.from({ length: COUNT }, (_, i) => Buffer.from(`${entry(i)}\n`)),
  );
  await log.close();
  const whole = await readFile(path);
  const records = recordsOf(whole);
  assert.equal(records.length, COUNT);
  const random = seededRandom(20_261_121);
  const upTo = (limit: number): number => Math.floor(random() * limit);
  for (let round = 0; round < 40; round++) {
    let damaged = Buffer.from(whole);
    for (let hits = 1 + upTo(20); hits > 0; hits--) {
      const at = upTo(damaged.length);
      const length = 1 + upTo(upTo(8) === 0 ? 5000 : 60);
      const kind = upTo(4);
      if (kind === 0) damaged.fill(0, at, at + length);
      else if (kind === 1) for (let k = at; k < Math.min(damaged.length, at + length); k++) damaged[k] = upTo(256);
      else if (kind === 2) damaged = Buffer.concat([damaged.subarray(0, at), damaged.subarray(at + length)]);
      else
        damaged = Buffer.concat([
          damaged.subarray(0, at),
          Buffer.from('garbage\n'.repeat(upTo(4))),
          damaged.subarray(at),
        ]);
    }
    await writeFile(path, damaged);
    const text = damaged.toString('latin1');
    const intact = records
      .map((record, i) => ({ i, isIntact: text.includes(record.toString('latin1')) }))
      .filter(({ isIntact }) => isIntact);
    seen.damaged = 0;
    const lines = new FrameDecoder()
      .push(await readStopped({ multiplexed: true }))
      .map(({ payload }) => payload.toString());
    let at = 0;
    for (const { i } of intact) {
      at = lines.indexOf(`${entry(i)}\n`, at) + 1;
      assert.ok(at > 0, `round ${round}: record ${i} is missing`);
    }
    if (intact.length < COUNT - 20) assert.ok(seen.damaged > 0, `round ${round}: the damage was not told`);
    for (const tail of [1, 50]) assert.ok((await readStopped({ tail })).length < 250 * 4 * tail);
  }
}

test('json-file: every intact record of a damaged log comes out, in order', async (t) => {
  await fuzz(t, 'json-file', (file) =>
    file
      .toString('latin1')
      .split('\n')
      .slice(0, -1)
      .map((line) => Buffer.from(`${line}\n`, 'latin1')),
  );
});

test('local: every intact record of a damaged log comes out, in order', async (t) => {
  await fuzz(t, 'local', (file) => {
    const records: Buffer[] = [];
    for (let at = 0; at < file.length;) {
      const end = at + 8 + file.readUInt32BE(at);
      records.push(file.subarray(at, end));
      at = end;
    }
    return records;
  });
});

test('json-file: a hole of any size does not hide what is behind it', async (t) => {
  const { open, path, readStopped, seen } = await logFixture(t);
  const log = await open();
  log.write('stdout', Buffer.from('before\n'));
  await log.close();
  const record = await readFile(path);
  await writeFile(path, Buffer.concat([record, Buffer.alloc(9_000_000), record, record]));
  assert.equal((await readStopped()).toString(), 'before\nbefore\nbefore\n');
  assert.equal(seen.damaged, 9_000_000);
});

test('json-file: a torn record before a whole one, and a lost newline', async (t) => {
  const { path, readStopped } = await logFixture(t);
  const record = (text: string): string => `{"log":"${text}\\n","stream":"stdout","time":"2025-01-02T03:04:05Z"}`;
  await writeFile(
    path,
    `${record('a')}\n${record('torn').slice(0, 20)}${record('b')}\n${record('c')}${record('d')}\n` +
      // Neither half of a record's beginning makes one.
      `${record('f').replace('log', 'lag')}\n${record('g').replace('log', 'lot')}\n` +
      `${record('h').replace('{"l', '{"f')}\n{"x":1}\nnull\n[]\n"s"\n${record('e')}\n`,
  );
  assert.equal((await readStopped()).toString(), 'a\nb\nc\nd\ne\n');
});

test('json-file: records of another writer are understood', async (t) => {
  const { path, readStopped } = await logFixture(t);
  await writeFile(
    path,
    '{"time":"2025-01-02T04:04:05.5+01:00","stream":"stderr","log":"\\ud83d\\ude00\\t\\/\\n","extra":[]}\n' +
      '{ "log": "spaced", "stream": "stdout", "time": "2025-01-02T03:04:05Z" }\n',
  );
  assert.equal(
    (await readStopped({ timestamps: true })).toString(),
    '2025-01-02T03:04:05.500000000Z 😀\t/\n2025-01-02T03:04:05.000000000Z spaced',
  );
});

test('json-file: a pipe in the place of a file is refused, and nobody waits for its other end', async (t) => {
  const { open, path, readStopped } = await logFixture(t);
  execFileSync('mkfifo', [path]);
  await assert.rejects(readStopped(), /is not a regular file/);
  await assert.rejects(open(), /is not a regular file/);
});
