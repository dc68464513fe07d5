import assert from 'node:assert/strict';
import { fstatSync } from 'node:fs';
import { Writable } from 'node:stream';
import { test } from 'node:test';
import { notFound } from '../errors/engine-error.js';
import { leadsToJournal } from './journal.js';
import { createLogger, type LoggerOptions } from './logger.js';

function capture(options: Partial<LoggerOptions> & { readonly isTTY?: boolean }) {
  let text = '';
  const sink = new Writable({
    write(chunk: Buffer, _encoding, done) {
      text += chunk.toString();
      done();
    },
  });
  const stream = Object.assign(sink, { isTTY: options.isTTY ?? false });
  const log = createLogger({ level: 'info', format: 'text', rawLogs: false, ...options, stream });
  return { log, lines: () => text.split('\n').slice(0, -1) };
}

test('json lines begin with level, msg and time', () => {
  const { log, lines } = capture({ format: 'json' });
  log.child({ container: 'abc' }).warn({ code: 7 }, 'a "quoted" message');
  const [line = ''] = lines();
  const parsed = JSON.parse(line) as Record<string, unknown>;
  assert.deepEqual(Object.keys(parsed), ['level', 'msg', 'time', 'container', 'code']);
  assert.deepEqual(
    [parsed['level'], parsed['msg'], parsed['container'], parsed['code']],
    ['warn', 'a "quoted" message', 'abc', 7],
  );
  assert.match(String(parsed['time']), /^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$/);
});

test('text lines are key=value, coloured only on a terminal that was not told otherwise', () => {
  const plain = capture({});
  plain.log.info({ path: '/a b', n: 1 }, 'started well');
  assert.match(plain.lines()[0] ?? '', /^time="?[^" ]+Z"? level=info msg="started well" path="\/a b" n=1$/);
  const terminal = capture({ isTTY: true });
  terminal.log.error({}, 'bad');
  assert.ok(terminal.lines()[0]?.includes('\u001b['));
  const raw = capture({ isTTY: true, rawLogs: true });
  raw.log.error({}, 'bad');
  assert.match(raw.lines()[0] ?? '', /^time=\S+ level=error msg=bad$/);
});

test('lines for the journal begin with their priority', () => {
  const { log, lines } = capture({ isJournal: true });
  log.info({}, 'usual');
  log.warn({}, 'odd');
  log.error({}, 'bad');
  log.fatal({}, 'the end');
  assert.deepEqual(
    lines().map((line) => /^<(\d)>time=\S+ level=(\w+)/.exec(line)?.slice(1)),
    [
      ['6', 'info'],
      ['4', 'warn'],
      ['3', 'error'],
      ['2', 'fatal'],
    ],
  );
});

test('the stream of the journal is the one that the service manager has named', () => {
  const { dev, ino } = fstatSync(0);
  assert.equal(leadsToJournal({ JOURNAL_STREAM: `${dev}:${ino}` }, 0), true);
  assert.equal(leadsToJournal({ JOURNAL_STREAM: `${dev}:${ino + 1}` }, 0), false);
  assert.equal(leadsToJournal({}, 0), false);
});

test('the level can be changed, for children too', () => {
  const { log, lines } = capture({});
  const child = log.child({ a: 1 });
  child.debug({}, 'one');
  log.setLevel('debug');
  child.debug({}, 'two');
  log.setLevel('error');
  child.warn({}, 'three');
  child.error({}, 'four');
  assert.deepEqual(
    lines().map((line) => /msg=(\w+)/.exec(line)?.[1]),
    ['two', 'four'],
  );
});

test('secrets do not reach the log', () => {
  const { log, lines } = capture({ format: 'json' });
  const auth = { username: 'u', password: 'hunter2', identitytoken: 'hunter2' };
  log.info(
    { password: 'hunter2', auth, list: [{ authorization: 'hunter2' }], proxy: 'http://me:hunter2@proxy:3128/x' },
    'via https://me:hunter2@host/ and https://me:p@hunter2@host/',
  );
  log.error(
    { err: notFound('no http://me:hunter2@host/', { cause: new Error('http://me:hunter2@inner/') }) },
    'failed',
  );
  assert.equal(lines().length, 2);
  assert.ok(!lines().join().includes('hunter2'), lines().join());
  assert.ok(lines()[1]?.includes('@inner/'));
});

test('an expected error is its text and cause, an unexpected one has its stack', () => {
  const { log, lines } = capture({ format: 'json' });
  log.error({ err: notFound('no such thing', { cause: new Error('errno') }) }, 'x');
  log.error({ err: new TypeError('a bug') }, 'y');
  const remote = Object.assign(new Error('2 UNKNOWN: no shim'), { code: 2, details: 'no shim' });
  log.error({ err: notFound('start failed: no shim', { cause: notFound('no shim', { cause: remote }) }) }, 'z');
  assert.equal((JSON.parse(lines()[2] ?? '') as { err: unknown }).err, 'start failed: no shim');
  const [expected, bug] = lines().map((line) => String((JSON.parse(line) as { err: unknown }).err));
  assert.ok(expected?.startsWith('no such thing'));
  assert.match(bug ?? '', /TypeError: a bug\n\s+at /);
});

test('a log line never fails', () => {
  const { log, lines } = capture({ format: 'json' });
  const cycle: Record<string, unknown> = {
    big: 12n,
    bytes: Buffer.alloc(3),
    when: new Date(Number.NaN),
    none: undefined,
    empty: null,
  };
  cycle['self'] = cycle;
  log.info({ cycle }, 'odd');
  capture({}).log.info({ cycle }, 'odd');
  assert.ok(lines()[0]?.includes('"big":"12","bytes":"3 bytes","when":"invalid date","empty":null,"self":{'));
});
