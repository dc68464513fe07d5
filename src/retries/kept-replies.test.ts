import assert from 'node:assert/strict';
import { appendFile, mkdtemp, readdir, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { mock, test, type TestContext } from 'node:test';
import { isEngineError } from '../errors/engine-error.js';
import { isAttempt, type Attempt, type KeptReplies, type KeptReply, type RetryKind } from '../ports/kept-replies.js';
import type { Logger } from '../ports/logger.js';
import { JournaledReplies } from './kept-replies.js';

const REPLY: KeptReply = { status: 201, contentType: 'application/json', body: '{"Id":"x"}\n' };

async function fixture(t: TestContext) {
  const dir = await mkdtemp(join(tmpdir(), 'replies-'));
  t.after(() => rm(dir, { recursive: true, force: true }));
  const warnings: string[] = [];
  const ignore = (): void => undefined;
  const warn = (_fields: unknown, message: unknown): void => void warnings.push(String(message));
  const log: Logger = { debug: ignore, info: ignore, warn, error: ignore, child: () => log };
  return { dir, warnings, open: () => JournaledReplies.open(dir, log) };
}

const ask = (replies: KeptReplies, key: string, fingerprint = 'f', kind: RetryKind = 'once') =>
  replies.admit({ key, fingerprint, kind });

async function attempt(replies: KeptReplies, key: string, kind: RetryKind = 'once'): Promise<Attempt> {
  const admitted = await ask(replies, key, 'f', kind);
  assert.ok(isAttempt(admitted), 'there is a reply');
  return admitted;
}

const isReused = (error: unknown): boolean => isEngineError(error, 'invalid') && error.code === 'KEY_REUSED';

test('who repeats a request waits for its reply, and gets it; a different request is refused', async (t) => {
  const { open } = await fixture(t);
  const replies = await open();
  const first = await attempt(replies, 'a');
  const repeated = ask(replies, 'a');
  await assert.rejects(ask(replies, 'a', 'other'), isReused);
  await first.keep(REPLY);
  assert.deepEqual(await repeated, REPLY);
  assert.deepEqual(await ask(replies, 'a'), REPLY);
  await assert.rejects(ask(replies, 'a', 'other'), isReused);
  assert.notEqual((await attempt(replies, 'b')).id, first.id);
  await replies.close();
});

test('what was dropped is begun anew by the one who waits', async (t) => {
  const { open } = await fixture(t);
  const replies = await open();
  const first = await attempt(replies, 'a');
  const repeated = attempt(replies, 'a');
  first.drop();
  const second = await repeated;
  assert.notEqual(second.id, first.id);
  // The end of an attempt that is over changes nothing.
  first.drop();
  await first.keep({ ...REPLY, status: 400 });
  await second.keep(REPLY);
  assert.deepEqual(await ask(replies, 'a'), REPLY);
  await replies.close();
});

test('requests that join each other all run, until one has a reply', async (t) => {
  const { open } = await fixture(t);
  const replies = await open();
  const [first, second] = [await attempt(replies, 'a', 'shared'), await attempt(replies, 'a', 'shared')];
  first.drop();
  const third = await attempt(replies, 'a', 'shared');
  await second.keep(REPLY);
  await third.keep({ ...REPLY, body: 'later' });
  assert.deepEqual(await ask(replies, 'a', 'f', 'shared'), REPLY);
  await replies.close();
});

test('the next daemon gives replies again, and knows what was begun', async (t) => {
  const { dir, warnings, open } = await fixture(t);
  const killed = await open();
  await (await attempt(killed, 'done')).keep(REPLY);
  const begun = await attempt(killed, 'begun');
  (await attempt(killed, 'dropped')).drop();
  // This line comes after the one that says what was dropped, so it waits for that.
  await attempt(killed, 'last');
  const [file = ''] = await readdir(dir);
  await appendFile(join(dir, file), '{"key":"damaged"}\nnot JSON\n{"key":"cut off');

  const next = await open();
  assert.deepEqual(warnings, ['kept replies are damaged and forgotten']);
  assert.deepEqual(await ask(next, 'done'), REPLY);
  await assert.rejects(ask(next, 'begun', 'other'), isReused);
  const again = await attempt(next, 'begun');
  assert.deepEqual([again.id, again.begunMs, again.isInterrupted], [begun.id, begun.begunMs, true]);
  assert.equal((await attempt(next, 'dropped')).isInterrupted, false);
  await again.keep({ ...REPLY, status: 204 });

  const third = await open();
  assert.equal(((await ask(third, 'begun')) as KeptReply).status, 204);
  await Promise.all([killed, next, third].map((one) => one.close()));
});

test('replies and files go after ten minutes', async (t) => {
  const { dir, open } = await fixture(t);
  mock.timers.enable({ apis: ['Date', 'setInterval'], now: 1_000_000_000_000 });
  t.after(() => mock.timers.reset());
  const replies = await open();
  await (await attempt(replies, 'a')).keep(REPLY);
  for (let minute = 1; minute <= 9; minute++) {
    mock.timers.tick(60_000);
    await (await attempt(replies, `m${minute}`)).keep(REPLY);
  }
  assert.deepEqual(await ask(replies, 'a'), REPLY);
  mock.timers.tick(60_001);
  await (await attempt(replies, 'a')).keep(REPLY);
  assert.deepEqual(await ask(replies, 'm9'), REPLY);
  for (let minute = 1; minute <= 60; minute++) {
    mock.timers.tick(60_000);
    await (await attempt(replies, `n${minute}`)).keep(REPLY);
  }
  const { length } = await readdir(dir);
  assert.ok(length <= 6, `${length} files`);
  await replies.close();
});
