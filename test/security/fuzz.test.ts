/**
 * Malformed requests against the real daemon: it lives, answers an error or closes, leaks nothing, and lets nothing
 * past an authorization plugin. FUZZ_CASES=100000 runs longer, FUZZ_SEED=7 runs others.
 */
import assert from 'node:assert/strict';
import { once } from 'node:events';
import { readdirSync, readFileSync } from 'node:fs';
import { writeFile } from 'node:fs/promises';
import { connect } from 'node:net';
import { join } from 'node:path';
import { after, before, test } from 'node:test';
import { setImmediate as turn, setTimeout as sleep } from 'node:timers/promises';
import { malformedCase, type MalformedCase } from '../fuzz/malformed-http.js';
import { randomBody, randomObject } from '../fuzz/random-json.js';
import { Random } from '../fuzz/random.js';
import { AuthorizationPlugin } from '../support/authorization-plugin.js';
import { Cleanup } from '../support/cleanup.js';
import { Engine } from '../support/engine.js';
import { engined } from '../support/engined.js';
import { call, callJson } from '../support/http.js';
import { tarOf } from '../support/image-builder.js';
import { waitFor } from '../support/wait.js';

const CASES = Number(process.env['FUZZ_CASES'] ?? 3000);
const SEED = Number(process.env['FUZZ_SEED'] ?? 1);
const CONCURRENCY = 32;
/** How long a client waits for an answer that may never come, since its request never ends. */
const PATIENCE_MS = 100;
const MIB = 1024 * 1024;

const cleanup = new Cleanup();
let engine: Engine;
let port = 0;

before(async () => {
  engine = await Engine.start(engined({ args: ['--host', 'tcp://127.0.0.1:0'] }));
  cleanup.add(() => engine.close());
  port = await engine.tcpPort();
});
after(() => cleanup.run());

/** Requests that are fine, and change nothing that stays. */
const ROUTES = [
  'GET /_ping',
  'GET /version',
  'GET /v1.41/containers/json',
  'GET /containers/absent/json',
  'GET /containers/absent/logs?stdout=1',
  'GET /images/json',
  'GET /events?until=1',
  'GET /volumes',
  'POST /containers/create',
  'POST /containers/absent/start',
  'POST /containers/absent/attach?stream=1',
  'POST /v1.30/containers/absent/attach?stream=1&stdin=1',
  'POST /containers/absent/exec',
  'POST /exec/absent/start',
  'POST /containers/absent/wait',
  'POST /images/create',
  'POST /commit',
  'PUT /containers/absent/archive?path=/',
  'DELETE /containers/absent',
  'GET /containers/absent/attach/ws',
  'POST /session',
  'POST /grpc',
  'OPTIONS /x',
];

/** Returns the bytes that came back, as far as they came. */
async function run({ pieces, ending }: MalformedCase): Promise<string> {
  // Only tcp has resets.
  const socket = connect({
    ...(ending === 'reset' ? { host: '127.0.0.1', port } : { path: engine.socketPath }),
    allowHalfOpen: true,
  });
  let received = '';
  socket.on('data', (chunk: Buffer) => (received += chunk.toString('latin1')));
  const over = new Promise<void>((resolve) => {
    socket.once('end', resolve);
    socket.once('error', () => resolve());
    socket.once('close', () => resolve());
  });
  await Promise.race([once(socket, 'connect'), over]).catch(() => undefined);
  for (const piece of pieces) {
    socket.write(piece);
    if (pieces.length > 1) await turn();
  }
  if (ending === 'half-close') socket.end();
  if (ending === 'wait' || ending === 'half-close') await Promise.race([over, sleep(PATIENCE_MS)]);
  if (ending === 'close') await turn();
  if (ending === 'reset') socket.resetAndDestroy();
  else socket.destroy();
  return received;
}

async function inParallel(count: number, one: (index: number) => Promise<void>): Promise<void> {
  let next = 0;
  await Promise.all(
    Array.from({ length: CONCURRENCY }, async () => {
      while (next < count) await one(next++);
    }),
  );
}

const descriptors = (): number => readdirSync(`/proc/${engine.pid}/fd`).length;
const residentBytes = (): number =>
  Number(/VmRSS:\s+(\d+)/.exec(readFileSync(`/proc/${engine.pid}/status`, 'utf8'))?.[1]) * 1024;
const statuses = (reply: string): number[] =>
  [...reply.matchAll(/HTTP\/1\.1 (\d{3}) /g)].map((match) => Number(match[1]));

/** Log lines that show a bug: an exception that nobody expected has a stack. */
function bugs(): string[] {
  return engine.log.split('\n').filter((line) => /\\n {4}at |unhandled|answered twice|without a reply/i.test(line));
}

async function mustBeWell(): Promise<void> {
  assert.equal((await call(engine.socketPath, 'GET', '/_ping')).text, 'OK');
  assert.deepEqual(bugs(), []);
}

test(`${CASES} malformed requests leave the daemon as it was`, async () => {
  const random = new Random(SEED);
  const attempt = async (): Promise<void> => {
    const request = malformedCase(random, { routes: ROUTES });
    const reply = await run(request);
    for (const status of statuses(reply))
      assert.ok([100, 101].includes(status) || (status >= 200 && status < 600), `${request.kind}: ${reply}`);
    assert.ok(
      !statuses(reply).includes(500) || /invalid syntax|parsing/.test(reply),
      `${request.kind} ${JSON.stringify(Buffer.concat(request.pieces).toString('latin1').slice(0, 500))}: ${reply}`,
    );
  };
  // The first ones fill pools and caches.
  await inParallel(CASES / 5, attempt);
  await mustBeWell();
  await waitFor('connections to end', () => descriptors() < 100);
  const [fds, memory] = [descriptors(), residentBytes()];
  await inParallel(CASES, attempt);
  await mustBeWell();
  // Behind a request that is in order the second one is, too.
  await call(engine.socketPath, 'DELETE', '/volumes/smuggled');
  await waitFor(
    () => `descriptors to be back at ${fds}; there are ${descriptors()}`,
    () => descriptors() <= fds + 2,
    30_000,
  );
  await waitFor(
    () => `memory to be back at ${memory}; it is ${residentBytes()}`,
    () => residentBytes() <= memory + 48 * MIB,
    30_000,
  );
});

test('a request whose end can be read in two ways is refused, with what may hide behind it', async () => {
  const hidden =
    'POST /volumes/create HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 19\r\n' +
    '\r\n{"Name":"smuggled"}';
  const framings = [
    'Content-Length: 0\r\nTransfer-Encoding: chunked',
    'Transfer-Encoding: chunked\r\nContent-Length: 0',
    'Content-Length: 0\r\nContent-Length: 5',
    'Content-Length: 0, 5',
    'Content-Length: +5',
    'Transfer-Encoding: chunked\r\nTransfer-Encoding: identity',
    'Transfer-Encoding: identity\r\nTransfer-Encoding: chunked',
    'Transfer-Encoding: xchunked',
    'Transfer-Encoding: chunked, identity',
    'Transfer-Encoding: gzip, chunked',
    'Transfer-Encoding : chunked',
    ' Transfer-Encoding: chunked',
    'Transfer-Encoding: \x0bchunked',
    'X: y\rTransfer-Encoding: chunked',
  ];
  for (const method of ['POST /containers/absent/start', 'GET /_ping', 'POST /containers/absent/attach']) {
    for (const framing of framings) {
      const bytes = Buffer.from(`${method} HTTP/1.1\r\nHost: x\r\n${framing}\r\n\r\n0\r\n\r\n${hidden}`, 'latin1');
      const reply = await run({ kind: framing, pieces: [bytes], ending: 'wait' });
      assert.match(reply, /^(HTTP\/1\.1 400 [^]*|)$/, `${method} ${framing}`);
      assert.ok(statuses(reply).length <= 1, reply);
    }
  }
  assert.equal((await call(engine.socketPath, 'GET', '/volumes/smuggled')).status, 404);
});

test('nothing gets around a plugin that denies everything', async () => {
  const plugin = await AuthorizationPlugin.start(join(engine.dir, 'deny.sock'));
  cleanup.add(() => plugin.stop());
  const reload = async (config: unknown): Promise<void> => {
    await writeFile(join(engine.dir, 'daemon.json'), JSON.stringify(config));
    assert.equal((await call(engine.socketPath, 'POST', '/engine/config/reload')).status, 200);
  };
  await reload({ 'authorization-plugins': [plugin.socketPath] });
  const count = async (): Promise<unknown> => {
    // Requests whose clients have left may still be asking.
    await plugin.set({ deny: [{ method: '^(?!GET$)' }] });
    const [containers, { Volumes }, images] = await Promise.all([
      callJson<unknown[]>(engine.socketPath, 'GET', '/containers/json?all=1'),
      callJson<{ Volumes: unknown[] }>(engine.socketPath, 'GET', '/volumes'),
      callJson<unknown[]>(engine.socketPath, 'GET', '/images/json'),
    ]);
    return [containers.length, Volumes.length, images.length];
  };
  const before = await count();
  await plugin.set({ deny: [{}] });
  const random = new Random(SEED + 1);
  try {
    await inParallel(CASES / 3, async () => {
      const request = malformedCase(random, { routes: ROUTES.filter((route) => !route.startsWith('OPTIONS')) });
      const reply = await run(request);
      const passed = statuses(reply).filter((status) => status < 300 && status !== 100);
      assert.deepEqual(
        passed,
        [],
        `${request.kind} ${JSON.stringify(Buffer.concat(request.pieces).toString('latin1').slice(0, 500))}: ${reply}`,
      );
    });
    assert.deepEqual(await count(), before);
  } finally {
    await plugin.set({});
    await reload({});
  }
  await mustBeWell();
});

test('JSON of any type in any place is an answer, not a fault', async () => {
  const imported = await call(engine.socketPath, 'POST', '/images/create?fromSrc=-&repo=fuzz', {
    body: tarOf([{ path: 'file', content: 'x' }]),
  });
  assert.equal(imported.status, 200, imported.text);
  const { Id } = await callJson<{ Id: string }>(
    engine.socketPath,
    'POST',
    '/containers/create',
    { json: { Image: 'fuzz', Cmd: ['x'] } },
    201,
  );
  const random = new Random(SEED + 2);
  const targets = [
    '/containers/create',
    `/containers/${Id}/update`,
    `/containers/${Id}/exec`,
    '/exec/absent/start',
    '/networks/create',
    '/networks/bridge/connect',
    '/networks/bridge/disconnect',
    '/volumes/create',
    `/commit?container=${Id}`,
    `/containers/${Id}/resize`,
    `/containers/${Id}/wait`,
  ];
  const seen = new Map<string, Set<number>>();
  await inParallel(CASES / 3, async () => {
    const target = random.of(targets);
    const isDeep = target === '/containers/create' && random.chance(0.8);
    const body = isDeep
      ? JSON.stringify(randomObject(random, 0, { Image: 'fuzz', Cmd: ['x'], HostConfig: randomObject(random, 0) }))
      : randomBody(random);
    // Waiting for a container that never starts ends with the client's patience only.
    const reply = target.endsWith('/wait')
      ? undefined
      : await call(engine.socketPath, 'POST', target, { body, headers: { 'Content-Type': 'application/json' } });
    if (reply === undefined) return;
    seen.set(target, (seen.get(target) ?? new Set()).add(reply.status));
    assert.ok(reply.status < 500 || JSON.parse(reply.text) !== undefined, `${target} ${body}: ${reply.text}`);
  });
  await mustBeWell();
  assert.ok(seen.get('/containers/create')?.has(400), 'bad ones are refused');
  const containers = await callJson<{ Id: string }[]>(engine.socketPath, 'GET', '/containers/json?all=1');
  await inParallel(
    containers.length,
    async (index) => void (await call(engine.socketPath, 'DELETE', `/containers/${containers[index]?.Id}?force=1&v=1`)),
  );
  for (const kind of ['networks', 'volumes'])
    await call(engine.socketPath, 'POST', `/${kind}/prune?filters=${encodeURIComponent('{"all":["true"]}')}`);
  await mustBeWell();
});
