/** The HTTP front over real sockets, with routes made for the test. */
import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { once } from 'node:events';
import { readdirSync, statSync } from 'node:fs';
import { mkdtemp, rm } from 'node:fs/promises';
import { connect as connectHttp2, createServer as createHttp2Server } from 'node:http2';
import { Agent, request, type IncomingMessage } from 'node:http';
import { connect, createServer, type Socket } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, test } from 'node:test';
import { setTimeout as sleep } from 'node:timers/promises';
import { conflict, isEngineError, notFound, notModified } from '../src/errors/engine-error.js';
import { createFront, type Front } from '../src/http/front.js';
import type { Listener } from '../src/http/listener.js';
import { pump } from '../src/http/response-stream.js';
import { route } from '../src/http/route.js';
import { h2cRoutes } from '../src/http/routes/h2c.js';
import { pingRoutes } from '../src/http/routes/ping.js';
import type { Logger } from '../src/ports/logger.js';
import { call, RawConnection } from './support/http.js';
import { waitFor } from './support/wait.js';

const MIB = 1024 * 1024;
const logged: string[] = [];
const logger: Logger = {
  debug: () => undefined,
  info: () => undefined,
  warn: (_fields, message) => void logged.push(message),
  error: (fields, message) => void logged.push(`${message} ${JSON.stringify(fields)}`),
  child: () => logger,
};

/** What handlers saw, by the path's last segment. */
const seen = new Map<string, string>();
let received = 0;
let sent = 0;

const http2 = createHttp2Server((request, response) => response.end(`http2 ${request.url}`));

const routes = [
  ...h2cRoutes({ '/session': (socket) => void http2.emit('connection', socket) }),
  ...pingRoutes({ builderVersion: '2', swarmState: () => 'inactive' }),
  route('GET', '/images/{name...}/json', (x) => x.sendJson(200, { name: x.param('name'), version: x.version, filter: x.query.text('f') })),
  route('POST', '/echo', async (x) => x.sendJson(201, { body: await x.json(), header: (x.header('x-registry-auth') ?? '').length })),
  route('POST', '/optional', async (x) => x.sendJson(200, { body: (await x.optionalJson()) ?? 'none' })),
  route('POST', '/late', async (x) => {
    await sleep(5);
    x.sendJson(200, { header: x.header('x-test'), q: x.query.text('q') });
  }),
  route('POST', '/fail/{kind}', async (x) => {
    await sleep(1);
    if (x.param('kind') === 'not-modified') throw notModified('same');
    if (x.param('kind') === 'bug') throw new TypeError('a bug');
    throw conflict('a < b & "c"', { code: 'TEST' });
  }),
  route('POST', '/silent', () => undefined),
  route('PUT', '/refuse', () => {
    throw notFound('no such place');
  }),
  route('PUT', '/upload', async (x) => {
    received = 0;
    const slowly = x.query.flag('slowly');
    for await (const chunk of x.bodyStream()) {
      received += (chunk as Buffer).length;
      if (slowly) await sleep(20);
    }
    x.sendJson(200, { received });
  }),
  route('POST', '/load', async (x) => {
    const progress = x.stream(200, { 'Content-Type': 'application/json' });
    let bytes = 0;
    for await (const chunk of x.bodyStream()) bytes += (chunk as Buffer).length;
    progress.write(`{"bytes":${bytes}}\n`);
    progress.end();
  }),
  route('GET', '/flood', async (x) => {
    const stream = x.stream(200, { 'Content-Type': 'application/octet-stream' });
    const piece = Buffer.alloc(64 * 1024, 'x');
    sent = 0;
    const pieces = async function* (): AsyncGenerator<Buffer> {
      for (; sent < 200 * MIB; sent += piece.length) yield piece;
    };
    await pump(pieces(), stream);
  }),
  route('GET', '/flood-blindly', (x) => {
    const stream = x.stream(200);
    stream.onClose(() => seen.set('flood-blindly', 'closed'));
    for (let i = 0; i < 1000; i++) stream.write(Buffer.alloc(64 * 1024));
  }),
  route('POST', '/wait', async (x) => {
    const stream = x.stream(200, { 'Content-Type': 'application/json' });
    x.signal.addEventListener('abort', () => seen.set('wait', 'aborted'));
    await stream.ready();
    await Promise.race([sleep(300), new Promise<void>((resolve) => stream.onClose(resolve))]);
    stream.write('{"StatusCode":0}\n');
    stream.end();
  }),
  route('GET', '/hang', async (x) => {
    x.onClose(() => {
      throw new Error('a bug in a callback');
    });
    await new Promise<void>((resolve) => x.onClose(resolve));
    seen.set('hang', x.signal.aborted ? 'aborted' : 'replied');
  }),
  route(
    'POST',
    '/containers/{id...}/attach',
    async (x) => {
      await sleep(5);
      if (x.param('id') === 'missing') {
        x.sendHijackError(notFound('No such container: missing'));
        return;
      }
      echo(await x.hijack({ contentType: 'application/vnd.docker.multiplexed-stream', commonHeaders: false }));
    },
    { hijack: 'after-head' },
  ),
  route(
    'POST',
    '/exec/{id...}/start',
    async (x) => {
      const body = await x.json<{ Detach?: boolean }>();
      if (x.param('id') === 'paused') throw conflict('paused');
      if (body.Detach === true) x.sendEmpty(200);
      else echo(await x.hijack({ contentType: 'application/vnd.docker.raw-stream', commonHeaders: true }));
    },
    { hijack: 'after-body' },
  ),
];

/** Sends back what comes, and after the client's end, late, a last word. */
function echo(socket: Socket): void {
  socket.on('data', (chunk: Buffer) => socket.write(`<${chunk.toString()}>`));
  socket.on('end', () => setTimeout(() => socket.end('bye'), 50));
}

let dir = '';
let path = '';
let front: Front;
let unix: Listener;
let tcp: Listener;

before(async () => {
  dir = await mkdtemp(join(tmpdir(), 'front-'));
  path = join(dir, 'engine.sock');
  front = createFront({ routes, product: { version: '28.1.1', experimental: false }, logger });
  unix = await front.listen({ kind: 'unix', path, gid: 12345 });
  tcp = await front.listen({ kind: 'tcp', host: '127.0.0.1', port: 0 });
});

after(async () => {
  await Promise.all([unix.close(1000), tcp.close(1000)]);
  await rm(dir, { recursive: true });
});

const openDescriptors = (): number => readdirSync('/proc/self/fd').length;

/** One request over a kept connection. */
function get(agent: Agent, target: string, method = 'GET'): Promise<IncomingMessage> {
  return new Promise((resolve, reject) => {
    const outgoing = request({ host: '127.0.0.1', port: tcp.port, agent, path: target, method }, (reply) => {
      reply.resume();
      reply.once('end', () => resolve(reply));
    });
    outgoing.once('error', reject);
    outgoing.end();
  });
}

const UPGRADE = 'Host: x\r\nConnection: Upgrade\r\nUpgrade: tcp\r\n';

test('the unix socket has mode 0660 and the given group', () => {
  const { mode, gid } = statSync(path);
  assert.equal(mode & 0o777, 0o660);
  assert.equal(gid, 12345);
});

test('a stale socket file is replaced, a live one and a plain file are refused', async () => {
  await assert.rejects(front.listen({ kind: 'unix', path }), (error) => isEngineError(error, 'conflict'));
  const stale = join(dir, 'stale.sock');
  // Left behind by a process that was killed.
  const script = `require('node:net').createServer().listen(${JSON.stringify(stale)}, () => process.kill(process.pid, 'SIGKILL'))`;
  spawnSync(process.execPath, ['-e', script]);
  assert.equal(statSync(stale).isSocket(), true);
  const listener = await front.listen({ kind: 'unix', path: stale });
  assert.equal((await call(stale, 'GET', '/_ping')).text, 'OK');
  await listener.close(100);
  assert.throws(() => statSync(stale));
  await assert.rejects(front.listen({ kind: 'unix', path: join(dir, 'x'.repeat(120)) }), (error) => isEngineError(error, 'invalid'));
});

test('a port in use is a clear error', async () => {
  const taken = createServer().listen(0, '127.0.0.1');
  await once(taken, 'listening');
  const address = taken.address();
  const port = typeof address === 'object' ? (address?.port ?? 0) : 0;
  await assert.rejects(front.listen({ kind: 'tcp', host: '127.0.0.1', port }), (error) => isEngineError(error, 'conflict'));
  taken.close();
});

test('_ping answers as documented, with the common headers', async () => {
  const reply = await call(path, 'GET', '/_ping');
  assert.equal(reply.text, 'OK');
  assert.deepEqual(reply.headerLines.slice(0, 9), [
    'Server: Docker/28.1.1 (linux)',
    'Api-Version: 1.49',
    'Ostype: linux',
    'Docker-Experimental: false',
    'Content-Type: text/plain; charset=utf-8',
    'Builder-Version: 2',
    'Cache-Control: no-cache, no-store, must-revalidate',
    'Pragma: no-cache',
    'Swarm: inactive',
  ]);
  const head = await call(path, 'HEAD', '/v1.24/_ping');
  assert.equal(head.status, 200);
  assert.equal(head.headers['content-length'], '0');
});

test('versions, unknown paths, OPTIONS and doubled slashes are answered as documented', async () => {
  const old = await call(path, 'GET', '/v1.23/_ping');
  assert.equal(old.status, 400);
  assert.equal(old.text, 'client version 1.23 is too old. Minimum supported API version is 1.24, please upgrade your client to a newer version\n');
  assert.equal(old.headers['content-type'], 'text/plain; charset=utf-8');
  assert.equal(old.headers['x-content-type-options'], 'nosniff');
  assert.equal(old.headers['api-version'], '1.49');
  assert.equal(old.headers['docker-experimental'], undefined);
  const young = await call(path, 'GET', '/v1.99/_ping');
  assert.equal(young.text, '{"message":"client version 1.99 is too new. Maximum supported API version is 1.49"}\n');
  assert.equal(young.headers['content-type'], 'application/json');
  for (const [method, target] of [['GET', '/v9.9/nope'], ['GET', '/_ping/'], ['HEAD', '/images/a/json'], ['DELETE', '/_ping']] as const) {
    const unknown = await call(path, method, target);
    assert.equal(unknown.status, 404, target);
    assert.equal(unknown.headers['api-version'], undefined);
    if (method !== 'HEAD') assert.equal(unknown.text, '{"message":"page not found"}\n');
  }
  assert.equal((await call(path, 'OPTIONS', '/any/thing')).status, 200);
  const doubled = await call(path, 'GET', '/v1.40//_ping?a=b');
  assert.deepEqual([doubled.status, doubled.headers['location']], [301, '/v1.40/_ping?a=b']);
  assert.equal((await call(path, 'GET', '/images/%zz/json')).status, 400);
});

test('names with slashes and encoded characters reach the handler decoded', async () => {
  const reply = await call(path, 'GET', '/v1.30/images/reg:5000/a%2Fb/json?f=x%20y+z');
  assert.equal(reply.headers['content-type'], 'application/json');
  assert.equal(reply.text, '{"name":"reg:5000/a/b","version":"1.30","filter":"x y z"}\n');
  const malformed = await call(path, 'GET', '/images/a/json?f=%zz');
  assert.equal(malformed.status, 400);
});

test('JSON bodies follow the rules for type, emptiness and content', async () => {
  const json = { 'Content-Type': 'application/json' };
  const cases: [expected: number | string, headers: Record<string, string>, body: string | undefined][] = [
    [201, json, '{"a":1}'],
    [201, { 'Content-Type': 'application/json; charset=utf-8' }, ' [1] '],
    ["unsupported Content-Type header (text/plain): must be 'application/json'", { 'Content-Type': 'text/plain' }, '{}'],
    ['malformed Content-Type header (): mime: no media type', {}, '{}'],
    ['invalid JSON: got EOF while reading request body', json, undefined],
    ['unexpected content after JSON', json, '{"a":"}"} {}'],
  ];
  for (const [expected, headers, body] of cases) {
    const reply = await call(path, 'POST', '/echo', { headers, ...(body === undefined ? {} : { body }) });
    if (typeof expected === 'number') assert.equal(reply.status, expected);
    else assert.deepEqual([reply.status, reply.text], [400, `${JSON.stringify({ message: expected })}\n`]);
  }
  const broken = await call(path, 'POST', '/echo', { headers: json, body: '{"a":' });
  assert.equal(broken.status, 400);
  assert.match(broken.text, /^\{"message":"invalid JSON: /);
  assert.equal((await call(path, 'POST', '/optional')).text, '{"body":"none"}\n');
});

test('a header of 60 KB gets through, a larger head is refused', async () => {
  const reply = await call(path, 'POST', '/echo', { json: {}, headers: { 'X-Registry-Auth': 'a'.repeat(60_000) } });
  assert.equal(reply.text, '{"body":{},"header":60000}\n');
  const connection = await RawConnection.open(path);
  connection.write(`GET /_ping HTTP/1.1\r\nHost: x\r\nX-Large: ${'a'.repeat(200_000)}\r\n\r\n`);
  assert.match(await connection.readThrough('\r\n'), /^HTTP\/1\.1 431 /);
  connection.close();
});

test('errors become their status; only bugs are logged', async () => {
  logged.length = 0;
  const reply = await call(path, 'POST', '/fail/conflict');
  assert.deepEqual([reply.status, reply.text], [409, '{"message":"a < b & \\"c\\""}\n']);
  const same = await call(path, 'POST', '/fail/not-modified');
  assert.deepEqual([same.status, same.text, same.headers['content-length']], [304, '', undefined]);
  assert.equal(logged.length, 0);
  const bug = await call(path, 'POST', '/fail/bug');
  assert.deepEqual([bug.status, bug.text], [500, '{"message":"a bug"}\n']);
  assert.equal((await call(path, 'POST', '/silent')).status, 500);
  assert.equal(logged.length, 2);
  assert.match(logged[0] ?? '', /request failed .*"req":"r\d+".*"path":"\/fail\/bug"/);
});

test('a connection serves many requests, also after refusals and unread bodies', async () => {
  const agent = new Agent({ keepAlive: true, maxSockets: 1 });
  const sockets = new Set<Socket>();
  for (const target of ['/_ping', '/nope', '/v1.99/_ping', '/_ping', '/images/a/json']) sockets.add((await get(agent, target)).socket);
  assert.equal((await get(agent, '/late?q=1', 'POST')).statusCode, 200);
  assert.equal(sockets.size, 1);
  agent.destroy();

  const connection = await RawConnection.open(path);
  connection.write(`PUT /refuse HTTP/1.1\r\nHost: x\r\nContent-Length: ${8 * MIB}\r\n\r\n`);
  assert.match(await connection.readThrough('no such place"}\n'), /^HTTP\/1\.1 404 /);
  connection.write(Buffer.alloc(8 * MIB));
  connection.write('GET /_ping HTTP/1.1\r\nHost: x\r\n\r\n');
  assert.match(await connection.readThrough('\r\n\r\nOK'), /^HTTP\/1\.1 200 OK/);
  connection.close();
});

test('pipelined requests are answered in order', async () => {
  const connection = await RawConnection.open(path);
  connection.write('GET /_ping HTTP/1.1\r\nHost: x\r\n\r\nGET /images/a/json HTTP/1.1\r\nHost: x\r\n\r\nPOST /wait HTTP/1.1\r\nHost: x\r\n\r\n');
  const all = (await connection.readToEnd()).toString();
  const order = ['OK', '{"name":"a"', 'Transfer-Encoding: chunked', '{"StatusCode":0}'].map((text) => all.indexOf(text));
  assert.ok(order.every((at, i) => at > (order[i - 1] ?? 0)), `${order.join()} in ${all}`);
  connection.close();
});

test('the head of a stream is sent before its first byte', async () => {
  const connection = await RawConnection.open(path);
  const start = Date.now();
  connection.write('POST /wait HTTP/1.1\r\nHost: x\r\n\r\n');
  const head = await connection.readThrough('\r\n\r\n');
  assert.ok(Date.now() - start < 250);
  assert.match(head, /^HTTP\/1\.1 200 OK\r\nServer: Docker\/28\.1\.1 \(linux\)\r\n/);
  assert.equal((await connection.readToEnd()).toString(), '11\r\n{"StatusCode":0}\n\r\n0\r\n\r\n');
  connection.close();
});

test('an upload goes at the pace of its reader, in bounded memory', async () => {
  const body = Buffer.alloc(64 * MIB, 'y');
  const reply = await call(path, 'PUT', '/upload', { body });
  assert.equal(reply.text, `{"received":${body.length}}\n`);

  const socket = connect(path);
  socket.write(`PUT /upload?slowly=1 HTTP/1.1\r\nHost: x\r\nContent-Length: ${body.length}\r\n\r\n`);
  socket.write(body);
  await sleep(300);
  assert.ok(socket.writableLength > 0 || received < 32 * MIB, 'the client is held back');
  assert.ok(received < 32 * MIB, `${received} bytes were taken from a slow reader`);
  socket.destroy();
});

test('a reply can stream while the request body is still arriving', async () => {
  const reply = await call(path, 'POST', '/load', { body: Buffer.alloc(20 * MIB) });
  assert.equal(reply.text, `{"bytes":${20 * MIB}}\n`);
  const chunked = await RawConnection.open(path);
  chunked.write('POST /load HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n');
  await sleep(20);
  chunked.write('2\r\nde\r\n0\r\n\r\n');
  assert.match(await chunked.readThrough('{"bytes":5}\n'), /^HTTP\/1\.1 200 OK/);
  chunked.close();
});

test('a stalled reader of a large stream costs little memory and gets all of it in the end', async () => {
  const before = process.memoryUsage().rss;
  const socket = connect(path);
  socket.pause();
  socket.write('GET /flood HTTP/1.1\r\nHost: x\r\n\r\n');
  await sleep(500);
  assert.ok(sent < 8 * MIB, `${sent} bytes were produced for a reader that reads nothing`);
  assert.ok(process.memoryUsage().rss - before < 64 * MIB);
  let bytes = 0;
  socket.on('data', (chunk: Buffer) => {
    bytes += chunk.length;
  });
  socket.resume();
  await once(socket, 'end');
  assert.ok(bytes > 200 * MIB);
});

test('a writer that ignores backpressure is cut off', async () => {
  const socket = connect(path);
  socket.pause();
  socket.on('error', () => undefined);
  socket.write('GET /flood-blindly HTTP/1.1\r\nHost: x\r\n\r\n');
  await waitFor('the stream to be cut off', () => seen.get('flood-blindly') === 'closed');
  socket.destroy();
});

test('a client that goes away aborts its exchange, in every phase', async () => {
  for (const [target, key] of [['GET /hang', 'hang'], ['POST /wait', 'wait']] as const) {
    seen.delete(key);
    const connection = await RawConnection.open(path);
    connection.write(`${target} HTTP/1.1\r\nHost: x\r\n\r\n`);
    await sleep(50);
    connection.close();
    await waitFor(`${target} to be aborted`, () => seen.get(key) === 'aborted');
  }
  assert.ok(logged.some((line) => line.startsWith('a callback at the end of a request failed')));
});

test('attach with Upgrade gets exactly the documented head, and half-closes work in both directions', async () => {
  const connection = await RawConnection.open(path);
  connection.write(`POST /v1.49/containers/a/b/attach?stream=1 HTTP/1.1\r\n${UPGRADE}Content-Length: 0\r\n\r\n`);
  assert.equal(
    await connection.readThrough('\r\n\r\n'),
    'HTTP/1.1 101 UPGRADED\r\nContent-Type: application/vnd.docker.multiplexed-stream\r\nConnection: Upgrade\r\nUpgrade: tcp\r\n\r\n',
  );
  connection.write('hello');
  assert.equal(await connection.readThrough('>'), '<hello>');
  connection.halfClose();
  assert.equal((await connection.readToEnd()).toString(), 'bye');
  connection.close();
});

test('bytes right behind the request, and an early end, reach whoever hijacks', async () => {
  const attach = await RawConnection.open(path);
  attach.write('POST /containers/a/attach?stream=1 HTTP/1.1\r\nHost: x\r\n\r\nhello\r\n\r\n');
  attach.halfClose();
  const all = (await attach.readToEnd()).toString();
  assert.equal(all, 'HTTP/1.1 200 OK\r\nContent-Type: application/vnd.docker.raw-stream\r\n\r\n<hello\r\n\r\n>bye');
  attach.close();

  const exec = await RawConnection.open(path);
  const body = '{"Detach":false}';
  exec.write(`POST /exec/e/start HTTP/1.1\r\n${UPGRADE}Content-Type: application/json\r\nContent-Length: ${body.length}\r\n\r\n${body.slice(0, 4)}`);
  await sleep(20);
  exec.write(`${body.slice(4)}input`);
  const head = await exec.readThrough('\r\n\r\n');
  assert.ok(head.startsWith('HTTP/1.1 101 UPGRADED\r\nContent-Type: application/vnd.docker.raw-stream\r\nConnection: Upgrade\r\nUpgrade: tcp\r\nServer: Docker/28.1.1 (linux)\r\nApi-Version: 1.49\r\n'));
  assert.equal(await exec.readThrough('>'), '<input>');
  exec.halfClose();
  assert.equal((await exec.readToEnd()).toString(), 'bye');
  exec.close();
});

test('a connection that served other requests can be hijacked too', async () => {
  const body = '{"Detach":false}';
  for (const hijack of [
    `POST /containers/a/attach HTTP/1.1\r\n${UPGRADE}\r\n`,
    `POST /containers/a/attach HTTP/1.1\r\n${UPGRADE}Transfer-Encoding: chunked\r\n\r\n`,
    `POST /exec/e/start HTTP/1.1\r\n${UPGRADE}Content-Type: application/json\r\nContent-Length: ${body.length}\r\n\r\n${body}`,
    `POST /exec/e/start HTTP/1.1\r\n${UPGRADE}Content-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n10\r\n${body}\r\n0\r\n\r\n`,
  ]) {
    const connection = await RawConnection.open(path);
    connection.write('GET /_ping HTTP/1.1\r\nHost: x\r\n\r\n');
    await connection.readThrough('\r\n\r\nOK');
    connection.write(hijack);
    await connection.readThrough('\r\n\r\n');
    connection.write('hello');
    assert.equal(await connection.readThrough('>'), '<hello>');
    connection.halfClose();
    assert.equal((await connection.readToEnd()).toString(), 'bye');
    connection.close();
  }
});

test('an upgrade to h2c leads to its handler, another one or none does not', async () => {
  const socket = connect({ path });
  await once(socket, 'connect');
  socket.write('POST /session HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: h2c\r\n\r\n');
  const [head] = (await once(socket, 'data')) as [Buffer];
  assert.match(head.toString('latin1'), /^HTTP\/1\.1 101 Switching Protocols\r\nUpgrade: h2c\r\nConnection: Upgrade\r\n\r\n/);
  const client = connectHttp2('http://x', { createConnection: () => socket });
  const stream = client.request({ ':path': '/over/it' });
  let body = '';
  for await (const chunk of stream) body += String(chunk);
  assert.equal(body, 'http2 /over/it');
  client.destroy();
  const none = await call(path, 'POST', '/session');
  assert.deepEqual([none.status, none.text], [500, '{"message":"no upgrade proto in request"}\n']);
  const other = await call(path, 'POST', '/session', { headers: { Connection: 'close', Upgrade: 'tcp' } });
  assert.deepEqual([other.status, other.text], [500, '{"message":"protocol tcp not supported"}\n']);
  assert.equal((await call(path, 'POST', '/grpc')).status, 404);
});

test('routes that hijack can also answer plainly, and attach fails in its own way', async () => {
  const detached = await call(path, 'POST', '/exec/e/start', { json: { Detach: true } });
  assert.deepEqual([detached.status, detached.text, detached.headers['content-length']], [200, '', '0']);
  const paused = await call(path, 'POST', '/exec/paused/start', { json: {} });
  assert.deepEqual([paused.status, paused.text], [409, '{"message":"paused"}\n']);
  const malformed = await call(path, 'POST', '/exec/e/start', { headers: { 'Content-Type': 'application/json' }, body: '{' });
  assert.equal(malformed.status, 400);
  const missing = await RawConnection.open(path);
  missing.write(`POST /containers/missing/attach HTTP/1.1\r\n${UPGRADE}\r\n`);
  const expected = 'HTTP/1.1 404 Not Found\r\nContent-Type: application/vnd.docker.raw-stream\r\n\r\nNo such container: missing\r\n';
  assert.equal((await missing.readToEnd()).toString(), expected);
  missing.close();
});

test('too many requests in flight get 503 until one ends', async () => {
  const small = createFront({ routes, product: { version: '1', experimental: true }, logger, maxInFlight: 2 });
  const socketPath = join(dir, 'small.sock');
  const listener = await small.listen({ kind: 'unix', path: socketPath });
  const busy = [await RawConnection.open(socketPath), await RawConnection.open(socketPath)];
  for (const connection of busy) connection.write('GET /hang HTTP/1.1\r\nHost: x\r\n\r\n');
  await sleep(50);
  const refused = await call(socketPath, 'GET', '/_ping');
  assert.deepEqual([refused.status, refused.headers['retry-after'], refused.headers['docker-experimental']], [503, '1', 'true']);
  for (const connection of busy) connection.close();
  await waitFor('room for a request', async () => (await call(socketPath, 'GET', '/_ping')).status === 200);
  await listener.close(100);
});

test('closing lets what is in flight end, and cuts off what outlasts the limit', async () => {
  const socketPath = join(dir, 'closing.sock');
  const listener = await front.listen({ kind: 'unix', path: socketPath });
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

test('many connections come and go without leaving descriptors or losing requests', async () => {
  await sleep(100);
  const before = openDescriptors();
  const clients = await Promise.all(Array.from({ length: 300 }, () => RawConnection.open(path)));
  await Promise.all(
    clients.map(async (client, i) => {
      client.write(i % 3 === 0 ? 'POST /wait HTTP/1.1\r\nHost: x\r\n\r\n' : 'GET /_ping HTTP/1.1\r\nHost: x\r\n\r\n');
      await client.readThrough(i % 3 === 0 ? 'StatusCode' : '\r\n\r\nOK');
      if (i % 7 === 0) client.write(`POST /containers/a/attach HTTP/1.1\r\n${UPGRADE}\r\n`);
    }),
  );
  for (const client of clients) client.close();
  for (let i = 0; i < 200; i++) {
    const client = connect(tcp.port ?? 0, '127.0.0.1');
    client.on('error', () => undefined);
    client.write('GET /hang HTTP/1.1\r\nHost: x\r\n\r\n');
    client.once('connect', () => (i % 2 === 0 ? client.resetAndDestroy() : client.destroy()));
    await once(client, 'close');
  }
  await waitFor(() => `${openDescriptors()} descriptors to become ${before}`, () => openDescriptors() <= before);
});
