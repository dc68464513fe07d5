/** The part that terminates TLS in front of the API, without a daemon: back pressure, ends, and who the peer is. */
import assert from 'node:assert/strict';
import { once } from 'node:events';
import { readdirSync, readFileSync, writeSync } from 'node:fs';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, test } from 'node:test';
import { connect as connectPlain, Socket } from 'node:net';
import { connect, type TLSSocket } from 'node:tls';
import { setTimeout as sleep } from 'node:timers/promises';
import { createFront } from '../../src/http/front.js';
import type { TlsPeer } from '../../src/ports/tls-terminator.js';
import { pump } from '../../src/http/response-stream.js';
import { route } from '../../src/http/route.js';
import { TlsIdentity } from '../../src/http/tls-identity.js';
import { closeFd } from '../../src/sys/files/fd.js';
import { acceptFrom, listenOnTcp } from '../../src/sys/net/listen-socket.js';
import { TlsTermination } from '../../src/sys/net/tls-termination.js';
import { ThreadTerminator } from '../../src/workers/tls-terminator.js';
import { Authority, type Certificate } from '../support/certificates.js';
import { silentLog } from '../support/silent-log.js';
import { waitFor } from '../support/wait.js';

const MIB = 1024 * 1024;
let dir: string;
let ca: Authority;
let server: Certificate;
let client: Certificate;

before(async () => {
  dir = await mkdtemp(join(tmpdir(), 'tls-'));
  ca = new Authority(dir, 'ca');
  server = ca.issueServer();
  client = ca.issue('alice');
});
after(() => rm(dir, { recursive: true }));

function show({ cert, key }: Certificate): { cert: Buffer; key: Buffer } {
  return { cert: readFileSync(cert), key: readFileSync(key) };
}

let sent = 0;
const routes = [
  route('GET', '/small', (x) => x.sendText(200, 'small')),
  route('GET', '/flood', async (x) => {
    const stream = x.stream(200);
    const piece = Buffer.alloc(64 * 1024, 'x');
    sent = 0;
    const pieces = async function* (): AsyncGenerator<Buffer> {
      for (; sent < 100 * MIB; sent += piece.length) yield piece;
    };
    await pump(pieces(), stream);
  }),
];

test('a reader that stalls holds back the writer; listeners that close take their connections along', async () => {
  const front = createFront({
    routes,
    product: { version: '1', experimental: false },
    logger: silentLog,
    terminateTls: (rules, serve) => new ThreadTerminator(rules, silentLog, serve),
  });
  const tls = new TlsIdentity({ ca: ca.cert, ...server, minVersion: 'TLSv1.2' });
  const listener = await front.listen({ kind: 'tcp', host: '127.0.0.1', port: 0, tls });
  const options = { host: '127.0.0.1', port: listener.port ?? 0, rejectUnauthorized: false, ...show(client) };
  const socket: TLSSocket = connect(options);
  await once(socket, 'secureConnect');
  socket.write('GET /flood HTTP/1.1\r\nHost: localhost\r\n\r\n');
  await waitFor('the flood to begin', () => sent > 0);
  await sleep(500);
  const held = sent;
  assert.ok(held < 16 * MIB, `${held} bytes were produced for a reader that reads nothing`);
  let bytes = 0;
  socket.on('data', (data: Buffer) => (bytes += data.length));
  await once(socket, 'end');
  assert.ok(bytes > 100 * MIB);

  const idle = connect(options);
  await once(idle, 'secureConnect');
  idle.write('GET /small HTTP/1.1\r\nHost: localhost\r\n\r\n');
  assert.match(String((await once(idle, 'data'))[0]), /small$/);
  const ended = once(idle, 'end');
  idle.resume();
  await listener.close(1000);
  await listener.end(10_000);
  await ended;
  idle.destroy();
  socket.destroy();
});

test('the peer is the certificate that was verified', async () => {
  const { fd, port: inner } = await listenOnTcp('127.0.0.1', 0);
  const tls = new TlsIdentity({ ca: ca.cert, ...server, minVersion: 'TLSv1.2' });
  const peers: TlsPeer[] = [];
  const terminator = new ThreadTerminator(tls, silentLog, (connection, peer) => {
    peers.push(peer);
    closeFd(connection);
  });
  const socket = connect({ host: '127.0.0.1', port: inner, rejectUnauthorized: false, ...show(client) }).resume();
  terminator.accept(await waitFor('a connection', () => acceptFrom(fd)));
  await once(socket, 'end');
  const [peer] = peers;
  assert.deepEqual([peer?.kind, peer?.commonName, peer?.address], ['tls', 'alice', `127.0.0.1:${socket.localPort}`]);
  const pem = (text: string): string => text.replaceAll('\n', '');
  assert.deepEqual(
    peer?.certificates.map(pem),
    [client.cert, ca.cert].map((path) => pem(readFileSync(path, 'utf8'))),
  );
  socket.destroy();
  terminator.close();
  await terminator.end(10_000);
  closeFd(fd);
});

test('beyond a thousand handshakes the oldest is ended at once', async () => {
  const { fd, port } = await listenOnTcp('127.0.0.1', 0);
  const { context, verifies } = new TlsIdentity({ ca: ca.cert, ...server, minVersion: 'TLSv1.2' });
  const reasons: string[] = [];
  const termination = new TlsTermination(
    { context, verifies },
    {
      onOutcome: (outcome) => reasons.push('reason' in outcome ? outcome.reason : 'let in'),
      onClosed: () => undefined,
    },
  );
  const connected = async (count: number): Promise<Socket[]> => {
    const sockets = Array.from({ length: count }, () => connectPlain(port, '127.0.0.1').resume());
    for (let i = 0; i < count; i++) termination.accept(acceptFrom(fd) ?? (await waitFor('it', () => acceptFrom(fd))));
    return sockets;
  };
  // The first one is the oldest.
  const sockets = [...(await connected(1)), ...(await connected(999))];
  assert.deepEqual(reasons, []);
  const [first] = sockets;
  assert.ok(first);
  const ended = once(first, 'end');
  sockets.push(...(await connected(1)));
  await ended;
  assert.deepEqual(reasons, ['1000 others began a handshake after it']);
  for (const socket of sockets) socket.destroy();
  await waitFor('all to be told', () => reasons.length === sockets.length);
  closeFd(fd);
});

test('what was written before the end reaches a client that reads later', async () => {
  const { fd, port } = await listenOnTcp('127.0.0.1', 0);
  const tls = new TlsIdentity({ ca: ca.cert, ...server, minVersion: 'TLSv1.2' });
  let inner: number | undefined;
  const terminator = new ThreadTerminator(tls, silentLog, (given) => (inner = given));
  const socket = connect({ host: '127.0.0.1', port, rejectUnauthorized: false, ...show(client) });
  terminator.accept(await waitFor('a connection', () => acceptFrom(fd)));
  await once(socket, 'secureConnect');
  const end = await waitFor('the client to be let in', () => inner);
  let sent = 0;
  // Nothing takes any more of it, as the client does not read.
  for (let refused = 0; refused < 20;) {
    try {
      sent += writeSync(end, Buffer.alloc(MIB, 'x'));
      refused = 0;
    } catch {
      refused++;
      await sleep(10);
    }
  }
  closeFd(end);
  terminator.close();
  const over = terminator.end(60_000);
  // Nobody waits for this client if that is not waited for.
  await Promise.race([over, sleep(500)]);
  let bytes = 0;
  socket.on('data', (data: Buffer) => (bytes += data.length));
  await once(socket, 'end');
  assert.equal(bytes, sent);
  await over;
  socket.destroy();
  closeFd(fd);
});

test('clients on their way to a thread that fails are let go', async () => {
  const { fd, port } = await listenOnTcp('127.0.0.1', 0);
  const rules = { context: { cert: 'none', key: 'none' }, verifies: false, follow: () => () => undefined };
  const terminator = new ThreadTerminator(rules, silentLog, (given) => closeFd(given));
  const sockets = Array.from({ length: 3 }, () => connectPlain(port, '127.0.0.1').resume());
  const ends = sockets.map((socket) => once(socket, 'end'));
  for (const _ of sockets) terminator.accept(await waitFor('a connection', () => acceptFrom(fd)));
  await Promise.all(ends);
  for (const socket of sockets) socket.destroy();
  terminator.close();
  await terminator.end(1000);
  closeFd(fd);
});

test('a listener that ends while clients send and get bytes does not take the process with it', async () => {
  const { fd, port } = await listenOnTcp('127.0.0.1', 0);
  const tls = new TlsIdentity({ ca: ca.cert, ...server, minVersion: 'TLSv1.2' });
  for (let round = 0; round < 10; round++) {
    const inner: Socket[] = [];
    const terminator = new ThreadTerminator(tls, silentLog, (given) => {
      const echo = new Socket({ fd: given, readable: true, writable: true });
      echo.on('error', () => undefined).pipe(echo);
      inner.push(echo);
    });
    const sockets = Array.from({ length: 8 }, () =>
      connect({ host: '127.0.0.1', port, rejectUnauthorized: false, ...show(client) }),
    );
    for (const socket of sockets) {
      socket.on('error', () => undefined).on('data', (bytes: Buffer) => socket.write(bytes));
      terminator.accept(await waitFor('a connection', () => acceptFrom(fd)));
    }
    await waitFor('all to be let in', () => inner.length === sockets.length);
    for (const socket of sockets) socket.write(Buffer.alloc(64 * 1024, 'x'));
    await sleep(20);
    terminator.close();
    await terminator.end(0);
    await waitFor('the server to be told', () => inner.every((echo) => echo.closed));
    for (const socket of sockets) socket.destroy();
  }
  closeFd(fd);
});

test('a client that never closes keeps no connection that the server has first ended, then closed', async () => {
  const { fd, port } = await listenOnTcp('127.0.0.1', 0);
  const { context, verifies } = new TlsIdentity({ ca: ca.cert, ...server, minVersion: 'TLSv1.2' });
  let inner: Socket | undefined;
  let isClosed = false;
  const termination = new TlsTermination(
    { context, verifies },
    {
      onOutcome: (outcome) => {
        if (outcome.type === 'open') inner = new Socket({ fd: outcome.fd, allowHalfOpen: true });
      },
      onClosed: () => (isClosed = true),
    },
  );
  const options = { host: '127.0.0.1', port, rejectUnauthorized: false, allowHalfOpen: true, ...show(client) };
  const socket = connect(options).resume();
  socket.on('error', () => undefined);
  termination.accept(await waitFor('a connection', () => acceptFrom(fd)));
  const ended = once(socket, 'end');
  const end = await waitFor('the client to be let in', () => inner);
  end.end('all');
  await ended;
  assert.equal(isClosed, false);
  end.destroy();
  await waitFor('the connection to be let go', () => isClosed);
  socket.destroy();
  closeFd(fd);
});

test('a client for whose connection too few descriptors are left is not let in', async () => {
  const { fd, port } = await listenOnTcp('127.0.0.1', 0);
  const { context, verifies } = new TlsIdentity({ ca: ca.cert, ...server, minVersion: 'TLSv1.2' });
  const reasons: string[] = [];
  const termination = new TlsTermination(
    { context, verifies },
    {
      onOutcome: (outcome) => reasons.push('reason' in outcome ? outcome.reason : 'let in'),
      onClosed: () => undefined,
    },
    undefined,
    0,
  );
  const sockets = (): number => readdirSync('/proc/self/fd').length;
  const socket = connect({ host: '127.0.0.1', port, rejectUnauthorized: false, ...show(client) }).resume();
  socket.on('error', () => undefined);
  termination.accept(await waitFor('a connection', () => acceptFrom(fd)));
  const before = sockets();
  await once(socket, 'close');
  assert.deepEqual(reasons, ['nearly all file descriptors are in use']);
  await waitFor('the connection to go', () => sockets() < before);
  closeFd(fd);
});
