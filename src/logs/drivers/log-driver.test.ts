import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { mkdir, truncate } from 'node:fs/promises';
import { test } from 'node:test';
import { isEngineError } from '../../errors/engine-error.js';
import { ALL, logFixture, readAll } from '../log-fixture.js';

const AT_START = 'failed to create task for container: ';

test('drivers and options are checked with the known texts', async (t) => {
  const { driver } = await logFixture(t);
  const refusals: [string, Record<string, string>, string][] = [
    ['x', {}, 'error looking up logging plugin x: plugin "x" not found'],
    ['json-file', { foo: '1' }, "unknown log opt 'foo' for json-file log driver"],
    ['local', { labels: 'a' }, "unknown log opt 'labels' for log driver local"],
    ['json-file', { mode: 'fast' }, 'logger: logging mode not supported: fast'],
    [
      'json-file',
      { 'max-buffer-size': '1m' },
      "logger: max-buffer-size option is only supported with 'mode=non-blocking'",
    ],
    [
      'json-file',
      { mode: 'non-blocking', 'max-buffer-size': 'many' },
      "error parsing option max-buffer-size: invalid size: 'many'",
    ],
    ['json-file', { 'cache-disabled': 'maybe' }, 'invalid value for option cache-disabled: maybe'],
  ];
  for (const [name, options, text] of refusals)
    assert.throws(
      () => driver.validate(name, options),
      (error) => isEngineError(error, 'invalid') && error.message === text,
      text,
    );
  driver.validate('none', { anything: 'goes' });
  driver.validate('json-file', {
    'max-size': '1',
    'max-file': 'x',
    tag: '',
    'cache-disabled': 'true',
    mode: 'non-blocking',
    'max-buffer-size': '4k',
  });
});

test('values are checked when the log is opened', async (t) => {
  const { open } = await logFixture(t);
  const refusals: [Record<string, string>, string][] = [
    [{ 'max-size': '0' }, 'max-size must be a positive number'],
    [{ 'max-size': 'big' }, "invalid size: 'big'"],
    [{ 'max-size': '10zb' }, "invalid suffix: 'zb'"],
    [{ 'max-size': '-1' }, "invalid size: '-1'"],
    [{ 'max-file': '0' }, 'max-file cannot be less than 1'],
    [{ 'max-file': '1.5' }, 'strconv.Atoi: parsing "1.5": invalid syntax'],
    [{ compress: 'true' }, 'compress cannot be true when max-file is less than 2 or max-size is not set'],
    [{ compress: 'on' }, 'strconv.ParseBool: parsing "on": invalid syntax'],
  ];
  for (const [options, text] of refusals) {
    await assert.rejects(
      open({ options }),
      (error) =>
        isEngineError(error, 'invalid') && error.message === `${AT_START}failed to initialize logging driver: ${text}`,
      text,
    );
  }
  await assert.rejects(open({ options: { tag: '{{.Nope}}' } }), /unknown field: \{\{\.Nope\}\}/);
  await assert.rejects(open({ options: { 'env-regex': '(' } }), /env-regex is not a regular expression/);
});

test('none takes output and cannot be read', async (t) => {
  const { open, driver, container } = await logFixture(t, 'none');
  const log = await open();
  assert.equal(log.write('stdout', Buffer.from('x')), true);
  const unreadable = (error: unknown): boolean =>
    isEngineError(error, 'not-implemented') && error.message === 'configured logging driver does not support reading';
  assert.throws(() => log.read(ALL), unreadable);
  assert.throws(() => driver.read(container, ALL), unreadable);
  await log.close();
});

test('a slow disk makes write ask for a pause, and non-blocking mode drop and count', async (t) => {
  const { open, seen } = await logFixture(t);
  const chunk = Buffer.from(`${'x'.repeat(99)}\n`.repeat(655));
  const blocking = await open();
  let accepted = 0;
  while (blocking.write('stdout', chunk)) accepted++;
  assert.ok(accepted > 5 && accepted < 20, String(accepted));
  await new Promise<void>((resolve) => blocking.onceDrained(resolve));
  assert.equal((await readAll(blocking)).length, (accepted + 1) * chunk.length);
  await blocking.close();

  const lossy = await open({ id: 'd'.repeat(64), options: { mode: 'non-blocking', 'max-buffer-size': '500k' } });
  for (let i = 0; i < 50; i++) assert.equal(lossy.write('stdout', chunk), true);
  const kept = (await readAll(lossy)).length / 100;
  assert.ok(kept >= 2000 && kept < 6000, String(kept));
  assert.equal(kept + lossy.droppedLines, 50 * 655);
  await lossy.close();
  assert.equal(seen.dropped, lossy.droppedLines);
});

test('a log that cannot be opened says so', async (t) => {
  const { open, path } = await logFixture(t);
  await mkdir(path);
  await assert.rejects(
    open(),
    /^EngineError: failed to create task for container: failed to initialize logging driver: EISDIR/,
  );
});

test('the log of a container that is just stopping is read whole', async (t) => {
  const { open, readStopped } = await logFixture(t);
  const log = await open();
  log.write('stdout', Buffer.from('last words'));
  const closing = log.close();
  assert.equal((await readStopped()).toString(), 'last words');
  await closing;
  assert.equal((await readStopped()).toString(), 'last words');
});

test(
  'a full disk stops nothing: what it refuses is counted, and what follows is written',
  { skip: process.getuid?.() === 0 ? false : 'needs root' },
  async (t) => {
    const { open, dir, path, seen, readStopped } = await logFixture(t);
    if (spawnSync('mount', ['-t', 'tmpfs', '-o', 'size=256k', 'tmpfs', dir]).status !== 0)
      return t.skip('no tmpfs can be mounted');
    try {
      const log = await open();
      const chunk = Buffer.from(`${'x'.repeat(99)}\n`.repeat(500));
      for (let i = 0; i < 10; i++)
        if (!log.write('stdout', chunk)) await new Promise<void>((resolve) => log.onceDrained(resolve));
      await readAll(log, { tail: 1 });
      assert.ok(log.droppedLines > 0);
      const kept = (await readAll(log)).length / 100;
      assert.equal(kept + log.droppedLines, 5000);
      assert.equal(seen.failures.length, 1);
      await truncate(path, 0);
      log.write('stdout', Buffer.from('again\n'));
      await log.close();
      assert.equal((await readStopped()).toString(), 'again\n');
      assert.equal(seen.dropped, log.droppedLines);
    } finally {
      spawnSync('umount', [dir]);
    }
  },
);
