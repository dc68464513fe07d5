/** The HTTP front: listening, requests and their refusals, many connections. */
import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { once } from 'node:events';
import { readdirSync, statSync } from 'node:fs';
import { Agent, request, type IncomingMessage } from 'node:http';
import { connect, createServer, type Socket } from 'node:net';
import { join } from 'node:path';
import { test } from 'node:test';
import { setTimeout as sleep } from 'node:timers/promises';
import { isEngineError } from '../../src/errors/engine-error.js';
import { createFront } from '../../src/http/front.js';
import { call, RawConnection } from '../support/http.js';
import { MIB, TestFront, UPGRADE } from '../support/test-front.js';
import { waitFor } from '../support/wait.js';

const at = new TestFront();

const openDescriptors = (): number => readdirSync('/proc/self/fd').length;

/** One request over a kept connection. */
function get(agent: Agent, target: string, method = 'GET'): Promise<IncomingMessage> {
  return new Promise((resolve, reject) => {
    const outgoing = request({ host: '127.0.0.1', port: at.port, agent, path: target, method }, (reply) => {
      reply.resume();
      reply.once('end', () => resolve(reply));
    });
    outgoing.once('error', reject);
    outgoing.end();
  });
}

test('the unix socket has mode 0660 and the given group', () => {
  const { mode, gid } = statSync(at.path);
  assert.equal(mode & 0o777, 0o660);
  assert.equal(gid, 12345);
});

test('a stale socket file is replaced, a live one and a plain file are refused', async () => {
  await assert.rejects(at.front.listen({ kind: 'unix', path: at.path }), (error) => isEngineError(error, 'conflict'));
  const stale = join(at.dir, 'stale.sock');
  // Left behind by a process that was killed.
  const script =
    `require('node:net').createServer().listen(${JSON.stringify(stale)}, () => process.kill(process.pid, ` +
    "'SIGKILL'))";
  spawnSync(process.execPath, ['-e', script]);
  assert.equal(statSync(stale).isSocket(), true);
  const listener = await at.front.listen({ kind: 'unix', path: stale });
  assert.equal((await call(stale, 'GET', '/_ping')).text, 'OK');
  await listener.close(100);
  assert.throws(() => statSync(stale));
  await assert.rejects(at.front.listen({ kind: 'unix', path: join(at.dir, 'x'.repeat(120)) }), (error) =>
    isEngineError(error, 'invalid'),
  );
});

test('a port in use is a clear error', async () => {
  const taken = createServer().listen(0, '127.0.0.1');
  await once(taken, 'listening');
  const address = taken.address();
  const port = typeof address === 'object' ? (address?.port ?? 0) : 0;
  await assert.rejects(at.front.listen({ kind: 'tcp', host: '127.0.0.1', port }), (error) =>
    isEngineError(error, 'conflict'),
  );
  taken.close();
});

test('_ping answers as documented, with the common headers', async () => {
  const reply = await call(at.path, 'GET', '/_ping');
  assert.equal(reply.text, 'OK');
  assert.deepEqual(reply.headerLines.slice(0, 9), [
    'Server: Docker/28.5.2 (linux)',
    'Api-Version: 1.51',
    'Ostype: linux',
    'Docker-Experimental: false',
    'Content-Type: text/plain; charset=utf-8',
    'Builder-Version: 2',
    'Cache-Control: no-cache, no-store, must-revalidate',
    'Pragma: no-cache',
    'Swarm: inactive',
  ]);
  const head = await call(at.path, 'HEAD', '/v1.24/_ping');
  assert.equal(head.status, 200);
  assert.equal(head.headers['content-length'], '0');
});

test('versions, unknown paths, OPTIONS and doubled slashes are answered as documented', async () => {
  const old = await call(at.path, 'GET', '/v1.23/_ping');
  assert.equal(old.status, 400);
  assert.equal(
    old.text,
    'client version 1.23 is too old. Minimum supported API version is 1.24, ' +
      'please upgrade your client to a newer version\n',
  );
  assert.equal(old.headers['content-type'], 'text/plain; charset=utf-8');
  assert.equal(old.headers['x-content-type-options'], 'nosniff');
  assert.equal(old.headers['api-version'], '1.51');
  assert.equal(old.headers['docker-experimental'], undefined);
  const young = await call(at.path, 'GET', '/v1.99/_ping');
  assert.equal(young.text, '{"message":"client version 1.99 is too new. Maximum supported API version is 1.51"}\n');
  assert.equal(young.headers['content-type'], 'application/json');
  for (const [method, target] of [
    ['GET', '/v9.9/nope'],
    ['GET', '/_ping/'],
    ['HEAD', '/images/a/json'],
    ['DELETE', '/_ping'],
  ] as const) {
    const unknown = await call(at.path, method, target);
    assert.equal(unknown.status, 404, target);
    assert.equal(unknown.headers['api-version'], undefined);
    if (method !== 'HEAD') assert.equal(unknown.text, '{"message":"page not found"}\n');
  }
  assert.equal((await call(at.path, 'OPTIONS', '/any/thing')).status, 200);
  const doubled = await call(at.path, 'GET', '/v1.40//_ping?a=b');
  assert.deepEqual([doubled.status, doubled.headers['location']], [301, '/v1.40/_ping?a=b']);
  assert.equal((await call(at.path, 'GET', '/images/%zz/json')).status, 400);
});

test('names with slashes and encoded characters reach the handler decoded', async () => {
  const reply = await call(at.path, 'GET', '/v1.30/images/reg:5000/a%2Fb/json?f=x%20y+z');
  assert.equal(reply.headers['content-type'], 'application/json');
  assert.equal(reply.text, '{"name":"reg:5000/a/b","version":"1.30","filter":"x y z"}\n');
  const malformed = await call(at.path, 'GET', '/images/a/json?f=%zz');
  assert.equal(malformed.status, 400);
});

test('JSON bodies follow the rules for type, emptiness and content', async () => {
  const json = { 'Content-Type': 'application/json' };
  const cases: [expected: number | string, headers: Record<string, string>, body: string | undefined][] = [
    [201, json, '{"a":1}'],
    [201, { 'Content-Type': 'application/json; charset=utf-8' }, ' [1] '],
    [
      "unsupported Content-Type header (text/plain): must be 'application/json'",
      { 'Content-Type': 'text/plain' },
      '{}',
    ],
    ['malformed Content-Type header (): mime: no media type', {}, '{}'],
    ['invalid JSON: got EOF while reading request body', json, undefined],
    ['unexpected content after JSON', json, '{"a":"}"} {}'],
  ];
  for (const [expected, headers, body] of cases) {
    const reply = await call(at.path, 'POST', '/echo', { headers, ...(body === undefined ? {} : { body }) });
    if (typeof expected === 'number') assert.equal(reply.status, expected);
    else assert.deepEqual([reply.status, reply.text], [400, `${JSON.stringify({ message: expected })}\n`]);
  }
  const broken = await call(at.path, 'POST', '/echo', { headers: json, body: '{"a":' });
  assert.equal(broken.status, 400);
  assert.match(broken.text, /^\{"message":"invalid JSON: /);
  assert.equal((await call(at.path, 'POST', '/optional')).text, '{"body":"none"}\n');
});

test('a header of 60 KB gets through, a larger head is refused', async () => {
  const reply = await call(at.path, 'POST', '/echo', { json: {}, headers: { 'X-Registry-Auth': 'a'.repeat(60_000) } });
  assert.equal(reply.text, '{"body":{},"header":60000}\n');
  const connection = await RawConnection.open(at.path);
  connection.write(`GET /_ping HTTP/1.1\r\nHost: x\r\nX-Large: ${'a'.repeat(200_000)}\r\n\r\n`);
  assert.match(await connection.readThrough('\r\n'), /^HTTP\/1\.1 431 /);
  connection.close();
});

test('errors become their status; only bugs are logged', async () => {
  at.logged.length = 0;
  const reply = await call(at.path, 'POST', '/fail/conflict');
  assert.deepEqual([reply.status, reply.text], [409, '{"message":"a < b & \\"c\\""}\n']);
  const same = await call(at.path, 'POST', '/fail/not-modified');
  assert.deepEqual([same.status, same.text, same.headers['content-length']], [304, '', undefined]);
  assert.equal(at.logged.length, 0);
  const bug = await call(at.path, 'POST', '/fail/bug');
  assert.deepEqual([bug.status, bug.text], [500, '{"message":"a bug"}\n']);
  assert.equal((await call(at.path, 'POST', '/silent')).status, 500);
  assert.equal(at.logged.length, 2);
  assert.match(at.logged[0] ?? '', /request failed .*"req":"r\d+".*"path":"\/fail\/bug"/);
});

test('a connection serves many requests, also after refusals and unread bodies', async () => {
  const agent = new Agent({ keepAlive: true, maxSockets: 1 });
  const sockets = new Set<Socket>();
  for (const target of ['/_ping', '/nope', '/v1.99/_ping', '/_ping', '/images/a/json'])
    sockets.add((await get(agent, target)).socket);
  assert.equal((await get(agent, '/late?q=1', 'POST')).statusCode, 200);
  assert.equal(sockets.size, 1);
  agent.destroy();

  const connection = await RawConnection.open(at.path);
  connection.write(`PUT /refuse HTTP/1.1\r\nHost: x\r\nContent-Length: ${8 * MIB}\r\n\r\n`);
  assert.match(await connection.readThrough('no such place"}\n'), /^HTTP\/1\.1 404 /);
  connection.write(Buffer.alloc(8 * MIB));
  connection.write('GET /_ping HTTP/1.1\r\nHost: x\r\n\r\n');
  assert.match(await connection.readThrough('\r\n\r\nOK'), /^HTTP\/1\.1 200 OK/);
  connection.close();
});

test('pipelined requests are answered in order', async () => {
  const connection = await RawConnection.open(at.path);
  connection.write(
    'GET /_ping HTTP/1.1\r\nHost: x\r\n\r\nGET /images/a/json HTTP/1.1\r\nHost: x\r\n\r\n' +
      'POST /wait HTTP/1.1\r\nHost: x\r\n\r\n',
  );
  const all = (await connection.readToEnd()).toString();
  const order = ['OK', '{"name":"a"', 'Transfer-Encoding: chunked', '{"StatusCode":0}'].map((text) =>
    all.indexOf(text),
  );
  assert.ok(
    order.every((at, i) => at > (order[i - 1] ?? 0)),
    `${order.join()} in ${all}`,
  );
  connection.close();
});

test('a connection ends with the reply where the client says so, in any spelling', async () => {
  const next = 'GET /at-once HTTP/1.1\r\nHost: x\r\n\r\n';
  for (const option of ['close', 'Close', 'keep-alive, close', 'close,keep-alive', 'x ,\tCLOSE'])
    for (const [line, content, rest] of [
      ['GET /_ping', 'OK', next],
      ['GET /images/a/json', '"name":"a"', next],
      ['GET /nothing', 'page not found', next],
      ['POST /wait', '{"StatusCode":0}', ''],
    ] as const) {
      const connection = await RawConnection.open(at.path);
      connection.write(`${line} HTTP/1.1\r\nHost: x\r\nConnection: ${option}\r\n\r\n${rest}`);
      const reply = (await connection.readToEnd()).toString('latin1');
      assert.ok(reply.includes(content), `${line} with ${option}: ${reply.slice(0, 500)}`);
      assert.doesNotMatch(reply, /HTTP\/1\.1 204/, `${line} with ${option}`);
      connection.close();
    }
  const connection = await RawConnection.open(at.path);
  connection.write(`GET /_ping HTTP/1.1\r\nHost: x\r\nConnection: closed, x-close\r\n\r\n`);
  await connection.readThrough('\r\n\r\nOK');
  connection.write(next);
  await connection.readThrough('HTTP/1.1 204');
  connection.close();
});

test('empty lines before a request are skipped, and a return within a line is refused at once', async () => {
  const ping = 'GET /_ping HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n';
  const cases: [pieces: string[], statuses: string[]][] = [
    [[`\r\n\r\n${ping}`], ['200']],
    [['\r', '\n', ping], ['200']],
    [
      ['POST /optional HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n', `\r\n${ping}`],
      ['200', '200'],
    ],
    [['GET /_ping HTTP/1.1\r\nHost: x\r\nX-A: b\rc\r\n\r\n'], ['400']],
    [['GET /_ping HTTP/1.1\r\nHost: x\r\nX-A: b\rc'], ['400']],
    [['\rGET /_ping HTTP/1.1\r\n'], ['400']],
  ];
  for (const [pieces, statuses] of cases) {
    const connection = await RawConnection.open(at.path);
    for (const piece of pieces) {
      connection.write(piece);
      await sleep(5);
    }
    const reply = (await connection.readToEnd()).toString();
    assert.deepEqual(
      [...reply.matchAll(/^HTTP\/1\.1 (\d+)/gm)].map(([, status]) => status),
      statuses,
      JSON.stringify(pieces),
    );
    connection.close();
  }
});

test('too many requests in flight get 503 until one ends', async () => {
  const small = createFront({
    routes: at.routes,
    product: { version: '1', experimental: true },
    logger: at.logger,
    maxInFlight: 2,
  });
  const socketPath = join(at.dir, 'small.sock');
  const listener = await small.listen({ kind: 'unix', path: socketPath });
  const busy = [await RawConnection.open(socketPath), await RawConnection.open(socketPath)];
  for (const connection of busy) connection.write('GET /hang HTTP/1.1\r\nHost: x\r\n\r\n');
  await sleep(50);
  const refused = await call(socketPath, 'GET', '/_ping');
  assert.deepEqual(
    [refused.status, refused.headers['retry-after'], refused.headers['docker-experimental']],
    [503, '1', 'true'],
  );
  for (const connection of busy) connection.close();
  await waitFor('room for a request', async () => (await call(socketPath, 'GET', '/_ping')).status === 200);
  await listener.close(100);
});

test('closing lets what is in flight end, and cuts off what outlasts the limit', async () => {
  const socketPath = join(at.dir, 'closing.sock');
  const listener = await at.front.listen({ kind: 'unix', path: socketPath });
  const [idle, waiting, silent, hanging] = [
    await RawConnection.open(socketPath),
    await RawConnection.open(socketPath),
    await RawConnection.open(socketPath),
    await RawConnection.open(socketPath),
  ];
  idle.write('GET /_ping HTTP/1.1\r\nHost: x\r\n\r\n');
  await idle.readThrough('\r\n\r\nOK');
  waiting.write('POST /wait HTTP/1.1\r\nHost: x\r\n\r\n');
  hanging.write('GET /hang HTTP/1.1\r\nHost: x\r\n\r\n');
  await waiting.readThrough('\r\n\r\n');
  const start = Date.now();
  await listener.close(600);
  assert.ok(Date.now() - start >= 500);
  assert.match((await waiting.readToEnd()).toString(), /StatusCode/);
  for (const connection of [idle, silent, hanging]) {
    await connection.readToEnd(1000);
    connection.close();
  }
  await assert.rejects(RawConnection.open(socketPath));
  waiting.close();
});

test('closing does not wait for what has no end of its own', async () => {
  const socketPath = join(at.dir, 'endless.sock');
  const listener = await at.front.listen({ kind: 'unix', path: socketPath });
  let finish = (): void => undefined;
  at.waited = new Promise((resolve) => (finish = resolve));
  const [endless, waiting] = [await RawConnection.open(socketPath), await RawConnection.open(socketPath)];
  endless.write('GET /endless HTTP/1.1\r\nHost: x\r\n\r\n');
  waiting.write('POST /wait HTTP/1.1\r\nHost: x\r\n\r\n');
  await Promise.all([endless, waiting].map((connection) => connection.readThrough('\r\n\r\n')));
  const closed = listener.close(120_000);
  await endless.readToEnd();
  assert.equal(listener.inFlight().length, 1);
  finish();
  assert.match((await waiting.readToEnd()).toString(), /StatusCode/);
  await closed;
  at.waited = undefined;
  for (const connection of [endless, waiting]) connection.close();
});

test('closing waits longer for work of the daemon than for what waits for others', async () => {
  const socketPath = join(at.dir, 'working.sock');
  const listener = await at.front.listen({ kind: 'unix', path: socketPath });
  let finish = (): void => undefined;
  at.waited = new Promise((resolve) => (finish = resolve));
  const [working, hanging, unsent] = [
    await RawConnection.open(socketPath),
    await RawConnection.open(socketPath),
    await RawConnection.open(socketPath),
  ];
  working.write('POST /work HTTP/1.1\r\nHost: x\r\n\r\n');
  hanging.write('GET /hang HTTP/1.1\r\nHost: x\r\n\r\n');
  unsent.write('PUT /upload HTTP/1.1\r\nHost: x\r\nContent-Length: 99999\r\n\r\nabc');
  await waitFor('all to be in flight', () => listener.inFlight().length === 3);
  const closed = listener.close(100);
  assert.deepEqual(await Promise.all([hanging.readToEnd(), unsent.readToEnd()]), [Buffer.alloc(0), Buffer.alloc(0)]);
  finish();
  assert.match((await working.readToEnd()).toString(), /^HTTP\/1.1 204 /);
  await closed;
  at.waited = undefined;
  for (const connection of [working, hanging, unsent]) connection.close();
});

test('many connections come and go without leaving descriptors or losing requests', async () => {
  await sleep(100);
  const before = openDescriptors();
  const clients = await Promise.all(Array.from({ length: 300 }, () => RawConnection.open(at.path)));
  await Promise.all(
    clients.map(async (client, i) => {
      client.write(i % 3 === 0 ? 'POST /wait HTTP/1.1\r\nHost: x\r\n\r\n' : 'GET /_ping HTTP/1.1\r\nHost: x\r\n\r\n');
      await client.readThrough(i % 3 === 0 ? 'StatusCode' : '\r\n\r\nOK');
      if (i % 7 === 0) client.write(`POST /containers/a/attach HTTP/1.1\r\n${UPGRADE}\r\n`);
    }),
  );
  for (const client of clients) client.close();
  for (let i = 0; i < 200; i++) {
    const client = connect(at.port, '127.0.0.1');
    client.on('error', () => undefined);
    client.write('GET /hang HTTP/1.1\r\nHost: x\r\n\r\n');
    client.once('connect', () => (i % 2 === 0 ? client.resetAndDestroy() : client.destroy()));
    await once(client, 'close');
  }
  await waitFor(
    () => `${openDescriptors()} descriptors to become ${before}`,
    () => openDescriptors() <= before,
  );
});

test('nothing is kept of a request that is over, whether its handler replied at once or later', async () => {
  for (const target of ['/at-once', '/wait', '/nothing-there', '/optional']) {
    const method = target === '/at-once' ? 'GET' : 'POST';
    await Promise.all(Array.from({ length: 20 }, () => call(at.path, method, target)));
  }
  await waitFor(
    () => `no request to be in flight instead of ${JSON.stringify(at.inFlight())}`,
    () => at.inFlight().length === 0,
  );
});
