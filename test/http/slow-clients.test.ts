/**
 * Clients that read late, or leave before their reply: nobody else notices, and no byte is lost or sent twice. The HTTP
 * library collects what is written in its callbacks, and loses what does not fit when the socket takes nothing more.
 */
import assert from 'node:assert/strict';
import { randomBytes } from 'node:crypto';
import { once } from 'node:events';
import { connect, type NetConnectOpts, type Socket } from 'node:net';
import { Readable } from 'node:stream';
import { test } from 'node:test';
import { internal } from '../../src/errors/engine-error.js';
import { route } from '../../src/http/route.js';
import { archiveRoutes, type RoutedArchives } from '../../src/http/routes/archive.js';
import { call, RawConnection } from '../support/http.js';
import { MIB, TestFront } from '../support/test-front.js';
import { waitFor } from '../support/wait.js';

const nothing = (): Promise<never> => Promise.reject(new Error('nobody asks for this'));
/** A container whose files a thread sends that notices before the daemon that the client has left. */
const archives: RoutedArchives = {
  stat: nothing,
  read: nothing,
  write: nothing,
  export: (name) =>
    Promise.resolve({
      tar: new Readable({ read: () => undefined }),
      sendTo: () => Promise.reject(internal(`write ${name}`, { code: name })),
      ended: Promise.resolve(),
    }),
};

const at = new TestFront([
  ...archiveRoutes(archives),
  route('PUT', '/triple', async (x) => {
    const reply = x.stream(200, { 'Content-Type': 'application/octet-stream' });
    for await (const chunk of x.bodyStream()) {
      const piece = chunk as Buffer;
      if (!reply.write(Buffer.concat([piece, piece, piece]))) await reply.ready();
    }
    reply.end();
  }),
  route('PUT', '/ended', (x) => {
    const reply = x.stream(200);
    reply.write(Buffer.alloc(MIB));
    reply.end();
  }),
]);

const NAME = 'n'.repeat(40_000);
/** This request has a reply at once, which is larger than what the library collects. */
const LARGE = `GET /images/${NAME}/json HTTP/1.1\r\nHost: x\r\n\r\n`;
const PING = 'GET /_ping HTTP/1.1\r\nHost: x\r\n\r\n';
const PINGED = /HTTP\/1\.1 200 OK\r\n(?:[!-9;-~]+: [^\r]*\r\n)+Content-Length: 2\r\n\r\nOK/g;

async function opened(target: NetConnectOpts): Promise<Socket> {
  const socket = connect(target);
  await once(socket, 'connect');
  socket.on('error', () => undefined);
  return socket;
}

/** The bytes that a client has received. */
const received = new WeakMap<Socket, string>();

function countPings(socket: Socket): number {
  const text = received.get(socket) ?? '';
  const count = text.match(PINGED)?.length ?? 0;
  // Behind whole replies is the beginning of one at most.
  const rest = text.replace(PINGED, '');
  assert.ok(rest === '' || rest.startsWith('HTTP/1.1 '), rest.slice(0, 400));
  return count;
}

/** A connection that has been used for so long that the library goes on reading it. */
async function askedBefore(): Promise<Socket> {
  const socket = await opened({ path: at.path });
  for (let i = 0; i < 6; i++) {
    socket.write(PING);
    const [reply] = (await once(socket, 'data')) as [Buffer];
    assert.equal(reply.toString().match(PINGED)?.length, 1);
  }
  received.set(socket, '');
  socket.on('data', (piece: Buffer) => received.set(socket, (received.get(socket) ?? '') + piece.toString('latin1')));
  return socket;
}

test('clients that leave before a large reply do not end the daemon', { timeout: 120_000 }, async () => {
  for (let i = 0; i < 300; i++) {
    for (const target of [{ path: at.path }, { host: '127.0.0.1', port: at.port }]) {
      const socket = await opened(target);
      socket.write(i % 3 === 0 ? LARGE + LARGE : LARGE, () =>
        'path' in target ? socket.destroy() : socket.resetAndDestroy(),
      );
      if (i % 2 === 0) await once(socket, 'close');
    }
  }
  assert.equal((await call(at.path, 'GET', '/_ping')).text, 'OK');
});

test('clients that leave before a stream is sent that has ended do not end the daemon', async () => {
  for (let i = 0; i < 300; i++) {
    const socket = await opened({ path: at.path });
    socket.write('PUT /ended HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\nab', () => socket.destroy());
    if (i % 2 === 0) await once(socket, 'close');
  }
  assert.equal((await call(at.path, 'GET', '/_ping')).text, 'OK');
});

test('a client that sends many requests at once gets a reply to each', { timeout: 120_000 }, async () => {
  const socket = await askedBefore();
  socket.write(PING.repeat(16));
  await waitFor('the replies', () => countPings(socket) === 16);
  socket.destroy();
});

test('a client that asks more than it reads gets whole replies, and its end', { timeout: 120_000 }, async () => {
  const socket = await askedBefore();
  socket.pause();
  socket.write((LARGE + PING.repeat(1000)).repeat(40));
  // Until the daemon takes no more, or has ended it.
  await waitFor('_ping', async () => (await call(at.path, 'GET', '/_ping')).text === 'OK');
  socket.resume();
  await waitFor('the replies, or the end', () => socket.destroyed || countPings(socket) === 40_000);
  assert.equal((await call(at.path, 'GET', '/_ping')).text, 'OK');
  socket.destroy();
});

test('a large reply is whole for a client that reads late, and the connection goes on', async () => {
  const socket = await opened({ path: at.path });
  const connection = new RawConnection(socket);
  const body = JSON.stringify({ text: randomBytes(MIB / 2).toString('hex') });
  for (let i = 0; i < 4; i++) {
    socket.pause();
    connection.write(`POST /echo HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n`);
    connection.write(`Content-Length: ${body.length}\r\n\r\n${body}`);
    const other = await call(at.path, 'GET', '/_ping');
    assert.equal(other.text, 'OK');
    socket.resume();
    const head = await connection.readThrough('\r\n\r\n');
    assert.match(head, /^HTTP\/1\.1 201 Created\r\n/);
    const expected = JSON.stringify({ body: JSON.parse(body) as unknown, header: 0 });
    assert.match(head, new RegExp(`Content-Length: ${expected.length + 1}\r\n`));
    assert.ok((await connection.readThrough(`"header":0}\n`)).trimEnd() === expected, `reply ${i} differs`);
    connection.write(PING);
    assert.match(await connection.readThrough('\r\n\r\nOK'), /^HTTP\/1\.1 200 OK/);
  }
  connection.close();
});

test('a stream of large pieces is whole while the request still arrives', { timeout: 120_000 }, async () => {
  const body = randomBytes(16 * MIB);
  const reply = await call(at.path, 'PUT', '/triple', { body });
  assert.equal(reply.body.length, 3 * body.length);
  // Each chunk comes three times: its length is not known here, so each part of the reply must follow in the body.
  let read = 0;
  for (let taken = 0; taken < body.length;) {
    const next = reply.body.indexOf(body.subarray(taken, taken + 32), read + 1);
    const length = (next < 0 || next - read > body.length - taken ? reply.body.length - read : 3 * (next - read)) / 3;
    const chunk = body.subarray(taken, taken + length);
    assert.ok(Buffer.concat([chunk, chunk, chunk]).equals(reply.body.subarray(read, read + 3 * length)), `at ${taken}`);
    taken += length;
    read += 3 * length;
  }
});

test('an export whose client has left is no failure of the daemon, another error is', async () => {
  for (const [code, logged] of [
    ['EPIPE', 0],
    ['ECONNRESET', 0],
    ['EIO', 1],
  ] as const) {
    at.logged.length = 0;
    // The reply is cut off.
    await assert.rejects(call(at.path, 'GET', `/containers/${code}/export`), { code: 'ECONNRESET' }, code);
    assert.equal(at.logged.length, logged, `${code}: ${at.logged.join()}`);
  }
});
