/**
 * Malformed requests against the real daemon: it lives, answers an error or closes, leaks nothing, and lets nothing
 * past an authorization plugin. FUZZ_CASES=100000 runs longer, FUZZ_SEED=7 runs others.
 */
import assert from 'node:assert/strict';
import { readdirSync, readFileSync } from 'node:fs';
import { after, before, test } from 'node:test';
import { malformedCase } from '../fuzz/malformed-http.js';
import { randomBody, randomObject } from '../fuzz/random-json.js';
import { Random } from '../fuzz/random.js';
import { CASES, inParallel, ROUTES, SEED, send, statuses } from '../fuzz/send-malformed.js';
import { Cleanup } from '../support/cleanup.js';
import { Engine } from '../support/engine.js';
import { engined } from '../support/engined.js';
import { call, callJson } from '../support/http.js';
import { tarOf } from '../support/image-builder.js';
import { waitFor } from '../support/wait.js';

const MIB = 1024 * 1024;
/** Descriptors of a worker thread that had work and is kept for the next one. */
const SPARE_THREAD = 4;

const cleanup = new Cleanup();
let engine: Engine;
let port = 0;

before(async () => {
  engine = await Engine.start(engined({ args: ['--host', 'tcp://127.0.0.1:0'] }));
  cleanup.add(() => engine.close());
  port = await engine.tcpPort();
});
after(() => cleanup.run());

const descriptors = (): number => readdirSync(`/proc/${engine.pid}/fd`).length;
const residentBytes = (): number =>
  Number(/VmRSS:\s+(\d+)/.exec(readFileSync(`/proc/${engine.pid}/status`, 'utf8'))?.[1]) * 1024;
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
    const reply = await send(request, engine.socketPath, port);
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
    () => descriptors() <= fds + 2 + SPARE_THREAD,
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
      const reply = await send({ kind: framing, pieces: [bytes], ending: 'wait' }, engine.socketPath, port);
      assert.match(reply, /^(HTTP\/1\.1 400 [^]*|)$/, `${method} ${framing}`);
      assert.ok(statuses(reply).length <= 1, reply);
    }
  }
  assert.equal((await call(engine.socketPath, 'GET', '/volumes/smuggled')).status, 404);
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
