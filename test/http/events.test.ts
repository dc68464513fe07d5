/** `/events` over a real socket. */
import assert from 'node:assert/strict';
import { once } from 'node:events';
import { connect } from 'node:net';
import { mkdtemp, rm } from 'node:fs/promises';
import { request, type IncomingMessage } from 'node:http';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, test } from 'node:test';
import { openEventLog } from '../../src/events/event-log.js';
import { createFront } from '../../src/http/front.js';
import type { Listener } from '../../src/http/listener.js';
import { eventRoutes } from '../../src/http/routes/events.js';
import type { EventLog } from '../../src/ports/events.js';
import type { Logger } from '../../src/ports/logger.js';
import { releaseMemory } from '../../src/sys/process/memory.js';
import { call } from '../support/http.js';
import { waitFor } from '../support/wait.js';

const logger: Logger = {
  debug: () => undefined,
  info: () => undefined,
  warn: () => undefined,
  error: () => undefined,
  child: () => logger,
};

let dir: string;
let socketPath: string;
let events: EventLog;
let listener: Listener;

before(async () => {
  dir = await mkdtemp(join(tmpdir(), 'events-http-'));
  socketPath = join(dir, 's');
  events = await openEventLog({ dir: join(dir, 'events'), onFailure: () => undefined });
  listener = await createFront({
    routes: eventRoutes(events),
    product: { version: '0', experimental: false },
    logger,
  }).listen({ kind: 'unix', path: socketPath });
});

after(async () => {
  await listener.close(100);
  await events.close();
  await rm(dir, { recursive: true, force: true });
});

async function follow(
  path: string,
): Promise<{ readonly response: IncomingMessage; readonly text: () => string; readonly leave: () => void }> {
  const outgoing = request({ socketPath, path, agent: false }).end();
  const [response] = (await once(outgoing, 'response')) as [IncomingMessage];
  let text = '';
  response.setEncoding('utf8').on('data', (piece: string) => (text += piece));
  response.on('error', () => undefined);
  return { response, text: () => text, leave: () => outgoing.destroy() };
}

const actions = (text: string): string[] =>
  text
    .trimEnd()
    .split('\n')
    .filter(Boolean)
    .map((line) => (JSON.parse(line) as { Action: string }).Action);
const query = (filters: object): string => `filters=${encodeURIComponent(JSON.stringify(filters))}`;

test('headers come at once, then events as they happen, to each who wants them', async () => {
  const all = await follow('/v1.51/events');
  assert.equal(all.response.statusCode, 200);
  assert.equal(all.response.headers['content-type'], 'application/json');
  const filtered = await follow(`/events?${query({ type: { container: true }, label: { 'tier=front': true } })}`);
  const old = await follow('/v1.45/events');
  events.emit('container', 'start', 'a', { name: 'web', tier: 'front' });
  events.emit('image', 'create', 'i', { name: 'x' });
  events.emit('container', 'die', 'b', { name: 'db' });
  await waitFor('all events', () => all.text().split('\n').length === 4);
  await waitFor('the filtered events', () => filtered.text().length > 0 && old.text().split('\n').length === 3);
  assert.deepEqual(actions(all.text()), ['start', 'create', 'die']);
  assert.deepEqual(actions(filtered.text()), ['start']);
  assert.deepEqual(actions(old.text()), ['start', 'die']);
  assert.equal(events.subscribers, 3);
  for (const client of [all, filtered, old]) client.leave();
  await waitFor('the subscriptions to end', () => events.subscribers === 0);
});

test('the past is replayed only when asked for, and until ends the reply', async () => {
  const since = await call(socketPath, 'GET', `/events?since=0&until=${Math.floor(Date.now() / 1000) + 1}`);
  assert.deepEqual(actions(since.text), ['start', 'create', 'die']);
  const { timeNano } = JSON.parse(since.text.split('\n')[1]?.replace(/"timeNano":(\d+)/, '"timeNano":"$1"') ?? '') as {
    timeNano: string;
  };
  const instant = `${timeNano.slice(0, -9)}.${timeNano.slice(-9)}`;
  assert.deepEqual(actions((await call(socketPath, 'GET', `/events?since=${instant}&until=${instant}`)).text), [
    'create',
  ]);
  assert.deepEqual(actions((await call(socketPath, 'GET', `/events?until=${instant}`)).text), ['start', 'create']);
});

test('bad times and filters are refused with the known texts', async () => {
  const refusals: [string, number, string][] = [
    ['since=20&until=10', 400, '`since` time (20) cannot be after `until` time (10)'],
    ['since=abc', 400, 'invalid since: strconv.ParseInt: parsing "abc": invalid syntax'],
    ['until=1.x', 400, 'invalid until: strconv.ParseInt: parsing "x": invalid syntax'],
    ['since=253402300800', 400, 'invalid since: strconv.ParseInt: parsing "253402300800": value out of range'],
    ['filters=nope', 400, 'invalid filter'],
  ];
  for (const [parameters, status, message] of refusals) {
    const reply = await call(socketPath, 'GET', `/events?${parameters}`);
    assert.deepEqual([reply.status, reply.text], [status, `${JSON.stringify({ message })}\n`], parameters);
  }
  assert.equal(events.subscribers, 0);
});

test('a client that does not read loses nothing', async () => {
  const slow = await follow('/events');
  slow.response.pause();
  const count = 10_000;
  for (let i = 0; i < count; i++) {
    events.emit('network', 'connect', `n${i}`, { name: 'bridge', container: 'c'.repeat(64) });
    if (i % 500 === 0) await new Promise((resolve) => setImmediate(resolve));
  }
  slow.response.resume();
  await waitFor('all events', () => slow.text().split('\n').length === count + 1);
  const seen = slow
    .text()
    .trimEnd()
    .split('\n')
    .map((line) => (JSON.parse(line) as { Actor: { ID: string } }).Actor.ID);
  assert.ok(seen.every((id, i) => id === `n${i}`));
  slow.leave();
});

test('many who do not read hold little memory, keep nobody waiting, and lose nothing', async () => {
  const FOLLOWERS = 300;
  const EVENTS = 3_000;
  const followers = await Promise.all(
    Array.from({ length: FOLLOWERS }, async () => {
      const socket = connect(socketPath).pause();
      socket.write('GET /events HTTP/1.1\r\nHost: x\r\n\r\n');
      await once(socket, 'connect');
      return socket;
    }),
  );
  try {
    await waitFor('the subscriptions', () => events.subscribers === FOLLOWERS);
    const before = process.memoryUsage().rss;
    for (let i = 0; i < EVENTS; i++) {
      events.emit('volume', 'create', `v${i}`, { driver: 'local', text: 'x'.repeat(100) });
      if (i % 10 === 0) await new Promise((resolve) => setImmediate(resolve));
    }
    const meanwhile = await call(socketPath, 'GET', `/events?since=0&until=1`);
    assert.equal(meanwhile.status, 200);
    // Each of them would hold a quarter of a MiB, and more than that in objects, if it were let.
    await waitFor(`little memory for ${FOLLOWERS} who do not read`, () => {
      releaseMemory();
      return process.memoryUsage().rss - before < 64 << 20;
    });
    const [late] = followers;
    let text = '';
    late?.on('data', (piece: Buffer) => (text += piece.toString('latin1')));
    late?.resume();
    await waitFor('the last event', () => text.includes(`"v${EVENTS - 1}"`));
    assert.deepEqual(
      [...text.matchAll(/"ID":"v(\d+)"/g)].map(([, number]) => Number(number)),
      Array.from({ length: EVENTS }, (_, i) => i),
    );
  } finally {
    for (const socket of followers) socket.destroy();
  }
  await waitFor('the subscriptions to end', () => events.subscribers === 0);
});

/** The lines of a reply, each with its cursor. */
const lines = (text: string): { readonly Action: string; readonly id: string; readonly cursor: string }[] =>
  text
    .trimEnd()
    .split('\n')
    .filter(Boolean)
    .map((line) => JSON.parse(line) as { Action: string; Actor: { ID: string; Attributes: Record<string, string> } })
    .map(({ Action, Actor, ...rest }) => ({
      Action,
      id: Actor.ID === '' ? (Actor.Attributes['missed'] ?? '') : Actor.ID,
      cursor: (rest as { cursor?: string }).cursor ?? '',
    }));

test('a reader that comes back with a cursor gets what follows, each event once, also after a restart', async () => {
  const own = join(dir, 'cursors');
  let log = await openEventLog({ dir: own, onFailure: () => undefined, fileBytes: 4000 });
  const path = join(dir, 'cursors.sock');
  const serve = (): Promise<Listener> =>
    createFront({ routes: eventRoutes(log), product: { version: '0', experimental: false }, logger }).listen({
      kind: 'unix',
      path,
    });
  let front = await serve();
  const ask = async (since: string): Promise<ReturnType<typeof lines>> =>
    lines((await call(path, 'GET', `/events?since=${since}&until=${((Date.now() + 5) / 1000).toFixed(3)}`)).text);
  try {
    for (let i = 0; i < 30; i++) log.emit('network', 'connect', `n${i}`, {});
    const all = await ask('0');
    assert.equal(all.length, 30);
    for (const round of ['the same run', 'the next run']) {
      for (const [i, { cursor }] of all.entries()) {
        const following = await ask(cursor);
        assert.deepEqual(
          following.map(({ id }) => id),
          all.slice(i + 1).map(({ id }) => id),
          `${round}, event ${i}`,
        );
        assert.deepEqual(
          following.map((line) => line.cursor),
          all.slice(i + 1).map((line) => line.cursor),
        );
      }
      if (round === 'the next run') break;
      await front.close(100);
      await log.close();
      log = await openEventLog({ dir: own, onFailure: () => undefined, fileBytes: 4000 });
      front = await serve();
    }
    // An engine that knows only times takes the cursor for the time of the event, and the known fraction is the same.
    assert.match(all[3]?.cursor ?? '', /^\d+\.\d{18}$/);
  } finally {
    await front.close(100);
    await log.close();
  }
});

test('what is no longer kept is one counted gap, and a cursor that nobody gave is refused', async () => {
  const log = await openEventLog({
    dir: join(dir, 'small'),
    onFailure: () => undefined,
    fileBytes: 2000,
    totalBytes: 4000,
  });
  const path = join(dir, 'small.sock');
  const front = await createFront({
    routes: eventRoutes(log),
    product: { version: '0', experimental: false },
    logger,
  }).listen({ kind: 'unix', path });
  const until = (): string => `until=${((Date.now() + 5) / 1000).toFixed(3)}`;
  try {
    log.emit('network', 'connect', 'first', {});
    const [first] = lines((await call(path, 'GET', `/events?since=0&${until()}`)).text);
    for (let i = 0; i < 3000; i++) {
      log.emit('network', 'connect', `n${i}`, { text: 'x'.repeat(50) });
      if (i % 50 === 0) await new Promise((resolve) => setTimeout(resolve, 1));
    }
    // Nobody misses events that wait for the disk, because they are in memory.
    await log.written();
    const query = `filters=${encodeURIComponent(JSON.stringify({ type: ['network'] }))}`;
    const got = lines((await call(path, 'GET', `/events?since=${first?.cursor}&${until()}&${query}`)).text);
    const [gap, ...kept] = got;
    assert.equal(gap?.Action, 'gap');
    assert.ok(kept.length > 0 && kept.every(({ Action }) => Action === 'connect'), JSON.stringify(got.slice(0, 3)));
    assert.equal(Number(gap?.id) + kept.length, 3000);
    const cursor = kept.at(-1)?.cursor ?? '';
    const forged = [
      `${cursor.slice(0, -9)}999999999`,
      `1${cursor.slice(1)}`.replace(/^1\d/, '19'),
      `${cursor.slice(0, -10)}${(Number(cursor.at(-10)) + 1) % 10}${cursor.slice(-9)}`,
    ];
    for (const since of forged) {
      const reply = await call(path, 'GET', `/events?since=${since}`);
      assert.equal(reply.status, 400, since);
      assert.match(reply.text, /unknown cursor .*: no event of this engine has it/);
    }
  } finally {
    await front.close(100);
    await log.close();
  }
});
