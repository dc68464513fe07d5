/** The HTTP front: bodies that stream in either direction, and connections that are hijacked or upgraded. */
import assert from 'node:assert/strict';
import { once } from 'node:events';
import { connect } from 'node:net';
import { test } from 'node:test';
import { setTimeout as sleep } from 'node:timers/promises';
import { call, RawConnection } from '../support/http.js';
import { MIB, TestFront, UPGRADE } from '../support/test-front.js';
import { waitFor } from '../support/wait.js';

const at = new TestFront();

test('the head of a stream is sent before its first byte', async () => {
  const connection = await RawConnection.open(at.path);
  let isOver = (): void => undefined;
  at.waited = new Promise((resolve) => (isOver = resolve));
  connection.write('POST /wait HTTP/1.1\r\nHost: x\r\n\r\n');
  const head = await connection.readThrough('\r\n\r\n');
  isOver();
  at.waited = undefined;
  assert.match(head, /^HTTP\/1\.1 200 OK\r\nServer: Docker\/28\.5\.2 \(linux\)\r\n/);
  assert.equal((await connection.readToEnd()).toString(), '11\r\n{"StatusCode":0}\n\r\n0\r\n\r\n');
  connection.close();
});

test('an upload goes at the pace of its reader, in bounded memory', async () => {
  const body = Buffer.alloc(64 * MIB, 'y');
  const reply = await call(at.path, 'PUT', '/upload', { body });
  assert.equal(reply.text, `{"received":${body.length}}\n`);

  const socket = connect(at.path);
  socket.write(`PUT /upload?slowly=1 HTTP/1.1\r\nHost: x\r\nContent-Length: ${body.length}\r\n\r\n`);
  socket.write(body);
  await sleep(300);
  assert.ok(socket.writableLength > 0 || at.received < 32 * MIB, 'the client is held back');
  assert.ok(at.received < 32 * MIB, `${at.received} bytes were taken from a slow reader`);
  socket.destroy();
});

test('a reply can stream while the request body is still arriving', async () => {
  const reply = await call(at.path, 'POST', '/load', { body: Buffer.alloc(20 * MIB) });
  assert.equal(reply.text, `{"bytes":${20 * MIB}}\n`);
  const chunked = await RawConnection.open(at.path);
  chunked.write('POST /load HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n');
  await sleep(20);
  chunked.write('2\r\nde\r\n0\r\n\r\n');
  assert.match(await chunked.readThrough('{"bytes":5}\n'), /^HTTP\/1\.1 200 OK/);
  chunked.close();
});

test('a stalled reader of a large stream costs little memory and gets all of it in the end', async () => {
  const before = process.memoryUsage().rss;
  const socket = connect(at.path);
  socket.pause();
  socket.write('GET /flood HTTP/1.1\r\nHost: x\r\n\r\n');
  await sleep(500);
  assert.ok(at.sent < 8 * MIB, `${at.sent} bytes were produced for a reader that reads nothing`);
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
  const socket = connect(at.path);
  socket.pause();
  socket.on('error', () => undefined);
  socket.write('GET /flood-blindly HTTP/1.1\r\nHost: x\r\n\r\n');
  await waitFor('the stream to be cut off', () => at.seen.get('flood-blindly') === 'closed');
  socket.destroy();
});

test('a client that goes away aborts its exchange, in every phase', async () => {
  for (const [target, key] of [
    ['GET /hang', 'hang'],
    ['POST /wait', 'wait'],
  ] as const) {
    at.seen.delete(key);
    const connection = await RawConnection.open(at.path);
    connection.write(`${target} HTTP/1.1\r\nHost: x\r\n\r\n`);
    await sleep(50);
    connection.close();
    await waitFor(`${target} to be aborted`, () => at.seen.get(key) === 'aborted');
  }
  assert.ok(at.logged.some((line) => line.startsWith('a callback at the end of a request failed')));
});

test('attach with Upgrade gets exactly the documented head, and half-closes work in both directions', async () => {
  const connection = await RawConnection.open(at.path);
  connection.write(`POST /v1.51/containers/a/b/attach?stream=1 HTTP/1.1\r\n${UPGRADE}Content-Length: 0\r\n\r\n`);
  assert.equal(
    await connection.readThrough('\r\n\r\n'),
    'HTTP/1.1 101 UPGRADED\r\nContent-Type: application/vnd.docker.multiplexed-stream\r\n' +
      'Connection: Upgrade\r\nUpgrade: tcp\r\n\r\n',
  );
  connection.write('hello');
  assert.equal(await connection.readThrough('>'), '<hello>');
  connection.halfClose();
  assert.equal((await connection.readToEnd()).toString(), 'bye');
  connection.close();
});

test('bytes right behind the request, and an early end, reach whoever hijacks', async () => {
  const attach = await RawConnection.open(at.path);
  attach.write('POST /containers/a/attach?stream=1 HTTP/1.1\r\nHost: x\r\n\r\nhello\r\n\r\n');
  attach.halfClose();
  const all = (await attach.readToEnd()).toString();
  assert.equal(all, 'HTTP/1.1 200 OK\r\nContent-Type: application/vnd.docker.raw-stream\r\n\r\n<hello\r\n\r\n>bye');
  attach.close();

  const exec = await RawConnection.open(at.path);
  const body = '{"Detach":false}';
  exec.write(
    `POST /exec/e/start HTTP/1.1\r\n${UPGRADE}Content-Type: application/json\r\n` +
      `Content-Length: ${body.length}\r\n\r\n${body.slice(0, 4)}`,
  );
  await sleep(20);
  exec.write(`${body.slice(4)}input`);
  const head = await exec.readThrough('\r\n\r\n');
  assert.ok(
    head.startsWith(
      'HTTP/1.1 101 UPGRADED\r\nContent-Type: application/vnd.docker.raw-stream\r\nConnection: Upgrade\r\n' +
        'Upgrade: tcp\r\nServer: Docker/28.5.2 (linux)\r\nApi-Version: 1.51\r\n',
    ),
  );
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
    `POST /exec/e/start HTTP/1.1\r\n${UPGRADE}Content-Type: application/json\r\n` +
      `Content-Length: ${body.length}\r\n\r\n${body}`,
    `POST /exec/e/start HTTP/1.1\r\n${UPGRADE}Content-Type: application/json\r\n` +
      `Transfer-Encoding: chunked\r\n\r\n10\r\n${body}\r\n0\r\n\r\n`,
  ]) {
    const connection = await RawConnection.open(at.path);
    // After so many the parser keeps the connection, until it is hijacked.
    for (let i = 0; i < 6; i++) {
      connection.write('GET /_ping HTTP/1.1\r\nHost: x\r\n\r\n');
      await connection.readThrough('\r\n\r\nOK');
    }
    connection.write(hijack);
    await connection.readThrough('\r\n\r\n');
    connection.write('hello');
    assert.equal(await connection.readThrough('>'), '<hello>');
    connection.halfClose();
    assert.equal((await connection.readToEnd()).toString(), 'bye');
    connection.close();
  }
});

test('routes that hijack can also answer plainly, and attach fails in its own way', async () => {
  const detached = await call(at.path, 'POST', '/exec/e/start', { json: { Detach: true } });
  assert.deepEqual([detached.status, detached.text, detached.headers['content-length']], [200, '', '0']);
  const paused = await call(at.path, 'POST', '/exec/paused/start', { json: {} });
  assert.deepEqual([paused.status, paused.text], [409, '{"message":"paused"}\n']);
  const malformed = await call(at.path, 'POST', '/exec/e/start', {
    headers: { 'Content-Type': 'application/json' },
    body: '{',
  });
  assert.equal(malformed.status, 400);
  const missing = await RawConnection.open(at.path);
  missing.write(`POST /containers/missing/attach HTTP/1.1\r\n${UPGRADE}\r\n`);
  const expected =
    'HTTP/1.1 404 Not Found\r\nContent-Type: application/vnd.docker.raw-stream\r\n\r\nNo such container: missing\r\n';
  assert.equal((await missing.readToEnd()).toString(), expected);
  missing.close();
});
