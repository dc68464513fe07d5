/** The part that terminates TLS in front of the API, without a daemon: back pressure, ends, and who the peer is. */
import assert from 'node:assert/strict';
import { once } from 'node:events';
import { readFileSync } from 'node:fs';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, test } from 'node:test';
import { connect, type TLSSocket } from 'node:tls';
import { setTimeout as sleep } from 'node:timers/promises';
import { createFront } from '../../src/http/front.js';
import type { TlsPeer } from '../../src/http/peer.js';
import { pump } from '../../src/http/response-stream.js';
import { route } from '../../src/http/route.js';
import { TlsIdentity } from '../../src/http/tls/identity.js';
import { createTlsTerminator } from '../../src/http/tls/terminator.js';
import { closeFd } from '../../src/sys/files/fd.js';
import { acceptFrom, listenOnTcp } from '../../src/sys/net/listen-socket.js';
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
  const front = createFront({ routes, product: { version: '1', experimental: false }, logger: silentLog });
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
  await ended;
  idle.destroy();
  socket.destroy();
});

test('the peer is the certificate that was verified', async () => {
  const { fd, port: inner } = await listenOnTcp('127.0.0.1', 0);
  const tls = new TlsIdentity({ ca: ca.cert, ...server, minVersion: 'TLSv1.2' });
  const peers: TlsPeer[] = [];
  const terminator = createTlsTerminator(tls, silentLog, (connection, peer) => {
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
  closeFd(fd);
});
