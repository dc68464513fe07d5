import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { once } from 'node:events';
import { mkdtemp, rm } from 'node:fs/promises';
import { connect, type AddressInfo, type ListenOptions, createServer } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test } from 'node:test';
import { acceptFrom, listenOnTcp, listenOnUnix } from './listen-socket.js';
import { closeFd } from '../files/fd.js';
import { socketPeer, type TcpPeer, type UnixPeer } from './socket-peer.js';

/** Returns what the kernel says about a connection to the listening descriptor, and the client's own port. */
async function peerOf(
  fd: number,
  options: { path: string } | { host: string; port: number },
): Promise<{ peer: UnixPeer | TcpPeer; port: number | undefined }> {
  const client = connect(options);
  await once(client, 'connect');
  const accepted = acceptFrom(fd);
  assert.ok(accepted !== undefined);
  const peer = socketPeer(accepted);
  const port = client.localPort;
  client.destroy();
  closeFd(accepted);
  closeFd(fd);
  return { peer, port };
}

test('a unix client is told by its process, user and group', async () => {
  const dir = await mkdtemp(join(tmpdir(), 'peer-'));
  const path = join(dir, 'socket');
  const { peer } = await peerOf(listenOnUnix(path, 0o600), { path });
  assert.deepEqual(peer, { kind: 'unix', pid: process.pid, uid: process.getuid?.(), gid: process.getgid?.() });
  await rm(dir, { recursive: true });
});

test('a tcp client is told by its address', async () => {
  const v4 = await listenOnTcp('127.0.0.1', 0);
  const { peer, port } = await peerOf(v4.fd, { host: '127.0.0.1', port: v4.port });
  assert.deepEqual(peer, { kind: 'tcp', address: `127.0.0.1:${port}` });
});

test('a silent tcp client is asked after a quarter of a minute whether it is there', async () => {
  const { fd, port } = await listenOnTcp('127.0.0.1', 0);
  const client = connect(port, '127.0.0.1');
  await once(client, 'connect');
  const accepted = acceptFrom(fd);
  assert.ok(accepted !== undefined);
  const shown = execFileSync('ss', ['-tnoH', `sport = :${port}`], { encoding: 'utf8' });
  assert.match(shown, /timer:\(keepalive,1[0-5]sec,0\)/);
  client.destroy();
  closeFd(accepted);
  closeFd(fd);
});

test('an IPv6 client is told by its address, an IPv4 one by the short form', async (t) => {
  if (!(await canListen({ host: '::1', port: 0 }))) return t.skip('the machine has no IPv6');
  const v6 = await listenOnTcp('::1', 0);
  const { peer, port } = await peerOf(v6.fd, { host: '::1', port: v6.port });
  assert.deepEqual(peer, { kind: 'tcp', address: `[::1]:${port}` });
  const both = await listenOnTcp('::', 0);
  const mapped = await peerOf(both.fd, { host: '127.0.0.1', port: both.port });
  assert.deepEqual(mapped.peer, { kind: 'tcp', address: `127.0.0.1:${mapped.port}` });
  return undefined;
});

function canListen(options: ListenOptions): Promise<boolean> {
  return new Promise((resolve) => {
    const server = createServer();
    server.once('error', () => resolve(false));
    server.listen(options, () => {
      const { port } = server.address() as AddressInfo;
      server.close(() => resolve(port > 0));
    });
  });
}
