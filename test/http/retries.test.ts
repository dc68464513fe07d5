/**
 * Requests that are repeated under an `Idempotency-Key`, over a real socket and with real containers. LIVES_COUNT=10000
 * is the long run of the last test.
 */
import assert from 'node:assert/strict';
import { chmodSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, test } from 'node:test';
import { fileURLToPath } from 'node:url';
import { Cleanup } from '../support/cleanup.js';
import type { Engine } from '../support/engine.js';
import { startEngineWithRegistry, type EngineWithRegistry } from '../support/engine-with-image.js';
import { engined } from '../support/engined.js';
import { call, callJson, jsonLines, open, type Reply } from '../support/http.js';
import { randomNumbers } from '../support/random-numbers.js';
import { startRepeatingProxy } from '../support/repeating-proxy.js';
import { shimsOf } from '../support/shim-of.js';
import { waitFor } from '../support/wait.js';

const LIVES = Number(process.env['LIVES_COUNT'] ?? 6);
const SEED = Number(process.env['LIVES_SEED'] ?? 1);

const cleanup = new Cleanup();
let engine: Engine;
let registry: EngineWithRegistry['registry'];
let image: string;

const hangFile = join(tmpdir(), `hang-${process.pid}`);
const main = fileURLToPath(new URL('../support/hanging-main.js', import.meta.url));

before(async () => {
  chmodSync(main, 0o755);
  cleanup.add(async () => rmSync(hangFile, { force: true }));
  const kind = engined({ main, args: ['--live-restore'], env: { HANG_FILE: hangFile } });
  ({ engine, registry, image } = await startEngineWithRegistry(cleanup, kind));
});
after(() => cleanup.run());

const post = (path: string, key: string, json?: unknown): Promise<Reply> =>
  call(engine.socketPath, 'POST', path, {
    headers: { 'Idempotency-Key': key },
    ...(json === undefined ? {} : { json }),
  });
const idOf = (reply: Reply): string => {
  assert.equal(reply.status, 201, reply.text);
  return (JSON.parse(reply.text) as { Id: string }).Id;
};
const container = (...command: string[]): unknown => ({ Image: image, Cmd: command, Tty: false });
const run = async (name: string, ...command: string[]): Promise<string> => {
  const id = idOf(await post(`/containers/create?name=${name}`, `${name}-create`, container(...command)));
  assert.equal((await post(`/containers/${id}/start`, `${name}-start`)).status, 204);
  return id;
};
const count = async (): Promise<number> =>
  (await callJson<unknown[]>(engine.socketPath, 'GET', '/containers/json?all=1')).length;
const remove = (id: string): Promise<unknown> => callJson(engine.socketPath, 'DELETE', `/containers/${id}?force=1&v=1`);
const logs = async (id: string): Promise<string> =>
  (await call(engine.socketPath, 'GET', `/containers/${id}/logs?stdout=1`)).text;

interface State {
  readonly State: { readonly Status: string; readonly StartedAt: string };
}
const inspect = (id: string): Promise<State> => callJson(engine.socketPath, 'GET', `/containers/${id}/json`);

async function refused(reply: Promise<Reply>, status: number, message: RegExp): Promise<void> {
  const { status: got, text } = await reply;
  assert.equal(got, status, text);
  assert.match((JSON.parse(text) as { message: string }).message, message);
}

test('equal requests with one key make one container, however many come and whoever leaves', async () => {
  const body = container('true');
  const leaving = new AbortController();
  const left = call(engine.socketPath, 'POST', '/containers/create', {
    headers: { 'Idempotency-Key': 'many' },
    json: body,
    signal: leaving.signal,
  }).catch(() => undefined);
  const replies = await Promise.all(Array.from({ length: 20 }, () => post('/containers/create', 'many', body)));
  leaving.abort();
  await left;
  assert.equal(new Set(replies.map((reply) => reply.text)).size, 1);
  const id = idOf(replies[0] as Reply);
  assert.equal(await count(), 1);

  const other = /Idempotency-Key was used for another request/;
  await refused(post('/containers/create', 'many', container('false')), 422, other);
  await refused(post('/containers/create?name=x', 'many', body), 422, other);
  await refused(post(`/containers/${id}/start`, 'many'), 422, other);
  await refused(post('/v1.45/containers/create', 'many', body), 422, other);
  await refused(post('/containers/create', 'k'.repeat(256), body), 400, /invalid Idempotency-Key: 1 to 255/);
  await refused(post('/containers/create', 'two words', body), 400, /invalid Idempotency-Key/);
  await refused(post('/containers/create', 'large', 'x'.repeat(5 << 20)), 413, /larger than 4194304 bytes/);
  assert.notEqual(idOf(await post('/containers/create', 'another', body)), id);
  assert.equal(await count(), 2);

  // The answer to a wrong request stays, too.
  await refused(post('/containers/create', 'missing', { Image: 'nosuch' }), 404, /No such image/);
  await refused(post('/containers/create', 'missing', { Image: image }), 422, other);
  for (const { Id } of await callJson<{ Id: string }[]>(engine.socketPath, 'GET', '/containers/json?all=1'))
    await remove(Id);
});

test('a start, a kill, a commit and an exec that are repeated are done once', async () => {
  const short = await run('short', 'true');
  const ended = await waitFor('the end', async () => {
    const found = await inspect(short);
    return found.State.Status === 'exited' && found;
  });
  assert.equal((await post(`/containers/${short}/start`, 'short-start')).status, 204);
  assert.equal((await inspect(short)).State.StartedAt, ended.State.StartedAt);
  assert.equal((await post(`/containers/${short}/start`, 'a-new-key')).status, 204);
  assert.notEqual((await inspect(short)).State.StartedAt, ended.State.StartedAt);

  const script = 'trap "echo got" USR1; echo ready; while :; do sleep 1000 & wait; done';
  const long = await run('long', 'sh', '-c', script);
  await waitFor('the trap', async () => (await logs(long)).includes('ready'));
  const signals = async (): Promise<number> => (await logs(long)).split('got').length - 1;
  // Two signals that come before the first is handled are one.
  for (let i = 0; i < 3; i++) assert.equal((await post(`/containers/${long}/kill?signal=USR1`, 'usr1')).status, 204);
  await waitFor('the signal', async () => (await signals()) === 1);
  assert.equal((await post(`/containers/${long}/kill?signal=USR1`, 'usr1-again')).status, 204);
  await waitFor('the other signal', async () => (await signals()) === 2);

  const commits = [
    await post(`/commit?container=${long}&repo=kept`, 'c'),
    await post(`/commit?container=${long}&repo=kept`, 'c'),
  ];
  assert.deepEqual(commits.map(idOf), [idOf(commits[0] as Reply), idOf(commits[0] as Reply)]);

  const command = { Cmd: ['sh', '-c', 'echo run >> /runs'], AttachStdout: true };
  const execs = [
    await post(`/containers/${long}/exec`, 'e', command),
    await post(`/containers/${long}/exec`, 'e', command),
  ];
  const exec = idOf(execs[0] as Reply);
  assert.equal(idOf(execs[1] as Reply), exec);
  const starts = [1, 2, 3].map(() => post(`/exec/${exec}/start`, 'es', { Detach: true }));
  assert.deepEqual(
    (await Promise.all(starts)).map(({ status }) => status),
    [200, 200, 200],
  );

  const attached = idOf(await post(`/containers/${long}/exec`, 'e2', { Cmd: ['cat', '/runs'], AttachStdout: true }));
  const start = { Detach: false, Tty: false };
  await waitFor('the end of the exec', async () => {
    const found = await callJson<{ Running: boolean; ExitCode: number | null }>(
      engine.socketPath,
      'GET',
      `/exec/${exec}/json`,
    );
    return !found.Running && found.ExitCode === 0;
  });
  assert.equal((await post(`/exec/${attached}/start`, 'e2s', start)).text.replace(/[^\w]/g, ''), 'run');
  await refused(post(`/exec/${attached}/start`, 'e2s', start), 409, /was served, and its connection carries/);
  assert.equal(await signals(), 2);
  await Promise.all([short, long].map(remove));
});

test('replies and what was begun outlive the daemon', async () => {
  const created = await post('/containers/create?name=kept', 'kept', container('true'));
  const id = idOf(created);
  const pull = `/images/create?fromImage=${encodeURIComponent(registry.reference)}`;
  const pulled = await post(pull, 'pull');
  assert.match(pulled.text, /Image is up to date/);
  await post('/images/create?fromImage=localhost:1/nosuch', 'failing');
  await engine.stop('SIGKILL');
  await engine.start();
  assert.equal((await post('/containers/create?name=kept', 'kept', container('true'))).text, created.text);
  await refused(post('/containers/create?name=kept', 'kept', container('false')), 422, /used for another request/);
  await registry.stop();
  assert.equal((await post(pull, 'pull')).text, pulled.text);
  assert.notEqual((await post(pull, 'pull-again')).text, pulled.text);
  await remove(id);
});

interface Told {
  readonly Type: string;
  readonly Action: string;
  readonly Actor: { readonly ID: string; readonly Attributes: Readonly<Record<string, string>> };
}

/** Returns how often each event of a container was told, by type and action. */
async function toldOf(id: string): Promise<Record<string, number>> {
  const { message } = await open(engine.socketPath, 'GET', `/events?since=0&until=${Date.now() / 1000}`);
  const counts: Record<string, number> = {};
  for await (const { Type, Action, Actor } of jsonLines<Told>(message)) {
    if (Actor.ID !== id && Actor.Attributes['container'] !== id) continue;
    counts[`${Type} ${Action}`] = (counts[`${Type} ${Action}`] ?? 0) + 1;
  }
  return counts;
}

/** Has an effect of the daemon never end, and makes a request that leads to it. */
async function hangAt(effect: string, when: 'before' | 'after', request: () => Promise<unknown>): Promise<void> {
  writeFileSync(hangFile, `${effect} ${when}`);
  void request().catch(() => undefined);
  await waitFor(`${effect} to hang`, () => readFileSync(hangFile, 'utf8') === 'hangs');
}

test('a daemon that dies between what it does and what it notes tells each event once', async () => {
  const create = async (name: string): Promise<string> => {
    const body = { Image: image, Cmd: ['sleep', '1000'], HostConfig: { Binds: [`told-${name}:/v`] } };
    return idOf(await post(`/containers/create?name=${name}`, `${name}-create`, body));
  };
  const start = (id: string): Promise<Reply> => post(`/containers/${id}/start`, `${id}-start`);
  const ended = await create('ended');
  const signalled = await create('signalled');
  for (const id of [ended, signalled]) assert.equal((await start(id)).status, 204);
  const removed = await create('removed');
  const started = await create('started');

  await hangAt('container.releasing', 'before', () => post(`/containers/${ended}/kill`, 'ended-kill'));
  await waitFor('its end', async () => (await toldOf(ended))['container die'] === 1);
  await hangAt('container.removing', 'after', () => remove(removed));
  await hangAt('container.creating', 'after', () => create('created'));
  await hangAt('container.starting', 'after', () => start(started));
  const [shim] = shimsOf(engine.dir, signalled);
  assert.ok(shim);
  process.kill(shim.pid, 'SIGSTOP');
  const signal = (): Promise<Reply> => post(`/containers/${signalled}/kill?signal=WINCH`, 'winch');
  void signal().catch(() => undefined);
  await waitFor('the signal', async () => (await toldOf(signalled))['container kill'] === 1);
  await engine.stop('SIGKILL');
  process.kill(shim.pid, 'SIGCONT');
  await engine.start();

  const created = await create('created');
  assert.equal((await start(started)).status, 204);
  assert.equal((await signal()).status, 204);
  await waitFor('the release', async () => (await toldOf(ended))['volume unmount'] === 1);
  assert.equal((await inspect(ended)).State.Status, 'exited');
  const running = { 'container create': 1, 'container start': 1, 'network connect': 1, 'volume mount': 1 };
  const made = { 'container create': 1 };
  const end = { 'container kill': 1, 'container die': 1, 'network disconnect': 1, 'volume unmount': 1 };
  assert.deepEqual(await toldOf(ended), { ...running, ...end });
  assert.deepEqual(await toldOf(removed), { ...made, 'container destroy': 1 });
  assert.deepEqual(await toldOf(created), made);
  assert.deepEqual(await toldOf(started), running);
  assert.deepEqual(await toldOf(signalled), { ...running, 'container kill': 1 });
  await Promise.all([ended, created, started, signalled].map(remove));
  for (const name of ['ended', 'signalled', 'removed', 'created', 'started'])
    await call(engine.socketPath, 'DELETE', `/volumes/told-${name}`);
});

test(`${LIVES} lives, a fifth of whose requests are lost and sent again, are ${LIVES} containers`, async (t) => {
  t.diagnostic(`seed ${SEED}`);
  const random = randomNumbers(SEED);
  const socketPath = join(engine.dir, 'proxy.sock');
  const proxy = await startRepeatingProxy({ to: engine.socketPath, socketPath, random, lossPercent: 20, cutMs: 60 });
  t.after(() => proxy.close());
  const since = Math.floor(Date.now() / 1000);
  const send = async (path: string, key: string, json?: unknown): Promise<Reply> => {
    const reply = await call(socketPath, 'POST', path, {
      headers: { 'Idempotency-Key': key },
      ...(json === undefined ? {} : { json }),
    });
    assert.ok(reply.status < 300, `${path} ${reply.status} ${reply.text}`);
    return reply;
  };
  let next = 0;
  let lived = 0;
  const ids = new Set<string>();
  const life = async (number: number): Promise<void> => {
    const body = { Image: image, Cmd: ['sleep', '1000'], HostConfig: { NetworkMode: 'none' }, Labels: { life: '1' } };
    const id = idOf(await send('/containers/create', `life-${number}-create`, body));
    ids.add(id);
    await send(`/containers/${id}/start`, `life-${number}-start`);
    await send(`/containers/${id}/kill`, `life-${number}-kill`);
    await callJson(socketPath, 'POST', `/containers/${id}/wait`);
    await call(socketPath, 'DELETE', `/containers/${id}?force=1`);
    // A removal that is sent again while it is under way is refused.
    const isGone = async (): Promise<boolean> =>
      (await call(socketPath, 'GET', `/containers/${id}/json`)).status === 404;
    await waitFor('the removal', () => isGone().catch(() => false));
    lived++;
  };
  const worker = async (): Promise<void> => {
    while (next < LIVES) await life(next++);
  };
  const working = Promise.all([worker(), worker(), worker(), worker()]);
  // The daemon dies in the middle of some of them.
  const kill = async (): Promise<void> => {
    const kills = Math.ceil(LIVES / 500);
    for (let i = 1; i <= kills; i++) {
      const reached = (LIVES * i) / (kills + 1);
      await waitFor(`${reached} lives`, () => lived >= reached, 3_600_000);
      await engine.stop('SIGKILL');
      await engine.start();
    }
  };
  await Promise.all([working, kill()]);

  const until = Math.floor(Date.now() / 1000) + 1;
  const events = await open(
    engine.socketPath,
    'GET',
    `/events?since=${since}&until=${until}&filters=${encodeURIComponent('{"label":["life"]}')}`,
  );
  const seen = new Map<string, number>();
  for await (const { Action } of jsonLines<{ Action: string }>(events.message))
    seen.set(Action, (seen.get(Action) ?? 0) + 1);
  t.diagnostic(`${ids.size} containers, ${proxy.repeated()} requests were repeated: ${JSON.stringify([...seen])}`);
  assert.ok(proxy.repeated() >= LIVES / 4, 'too few requests were lost');
  assert.equal(ids.size, LIVES, 'one container answered for two');
  // Nobody knows the ID of a container that was made twice, so nobody has removed it.
  assert.equal(await count(), 0);
  const actions = ['create', 'start', 'kill', 'die', 'destroy'];
  assert.deepEqual(Object.fromEntries(seen), Object.fromEntries(actions.map((action) => [action, LIVES])));
});
