import assert from 'node:assert/strict';
import { createHash } from 'node:crypto';
import { once } from 'node:events';
import { readFileSync } from 'node:fs';
import { connect, createServer, type AddressInfo, Socket } from 'node:net';
import { after, test } from 'node:test';
import { setTimeout as sleep } from 'node:timers/promises';
import { waitFor } from '../../test/support/wait.js';
import { closeFd, duplicateFd } from '../sys/files/fd.js';
import { acceptFrom } from '../sys/net/listen-socket.js';
import { bindPort } from '../sys/net/port-socket.js';
import { listen } from '../sys/net/socket-calls.js';
import { packConnections, unpackConnections } from './moved-connections.js';
import type { ProxyTarget } from './proxied-connection.js';
import { waitForUnderWay } from './under-way.js';
import { type Proxy, proxyTcp } from './userland-proxy.js';

const HOST = '127.0.0.1';
const LIMITS = { quietMs: 100, limitMs: Infinity };
const cleanup: (() => void)[] = [];
after(() => {
  for (const end of cleanup) end();
});

interface ProxiedPort {
  readonly port: number;
  readonly proxy: () => Proxy;
  /** Another process takes everything over. Returns how many connections it gets, and how many bytes with them. */
  readonly replace: () => { readonly connections: number; readonly bytes: number };
}

function proxied(target: ProxyTarget): ProxiedPort {
  const { fd, port } = bindPort('tcp', HOST, 0);
  let proxy = proxyTcp(duplicateFd(fd), HOST, target);
  cleanup.push(() => {
    proxy.close();
    closeFd(fd);
  });
  return {
    port,
    proxy: () => proxy,
    replace: () => {
      const left = proxy.leave();
      const moved = unpackConnections(packConnections(left));
      assert.equal(moved.length, left.length);
      proxy = proxyTcp(duplicateFd(fd), HOST, target, moved);
      const bytes = moved.map(({ toServer, toClient }) => toServer.length + toClient.length);
      return { connections: moved.length, bytes: bytes.reduce((sum, each) => sum + each, 0) };
    },
  };
}

function opened(socket: Socket): Socket {
  cleanup.push(() => socket.destroy());
  return socket;
}

/** Resolves when a socket has written all that its peers take. */
async function stalled(socket: Socket): Promise<void> {
  const { _handle: handle } = socket as unknown as { readonly _handle: { readonly writeQueueSize: number } };
  for (let last = -1; last !== handle.writeQueueSize; await sleep(50)) last = handle.writeQueueSize;
}

/** Resolves with what a socket receives until the other end says that it sends no more. This end can still send. */
async function received(socket: Socket): Promise<Buffer> {
  const pieces: Buffer[] = [];
  socket.on('data', (piece: Buffer) => pieces.push(piece));
  await once(socket, 'end');
  return Buffer.concat(pieces);
}

async function text(socket: Socket): Promise<string> {
  return (await received(socket)).toString();
}

/** Tells whether this machine asks for a connection to a port and has no answer. */
function isAskedFor(port: number): boolean {
  const remote = `:${port.toString(16).toUpperCase().padStart(4, '0')} 02 `;
  return readFileSync('/proc/net/tcp', 'utf8').includes(remote);
}

function digest(bytes: Buffer): string {
  return createHash('sha256').update(bytes).digest('hex');
}

/** Bytes of which no two parts are the same. */
function numbers(size: number, first: number): Buffer {
  const words = new Uint32Array(size / 4);
  for (let at = 0; at < words.length; at++) words[at] = first + at;
  return Buffer.from(words.buffer);
}

test('other processes go on with connections: idle ones, half-ended ones, and those with bytes not read', async () => {
  const server = createServer({ allowHalfOpen: true });
  server.listen(0, HOST);
  cleanup.push(() => server.close());
  await once(server, 'listening');
  const { port, proxy, replace } = proxied({ host: HOST, port: (server.address() as AddressInfo).port });
  const pair = async (): Promise<readonly [client: Socket, server: Socket]> => {
    const accepted = once(server, 'connection') as Promise<[Socket]>;
    const client = opened(connect({ host: HOST, port, allowHalfOpen: true }));
    return [client, opened((await accepted)[0])];
  };
  const [idle, halfEnded, full] = [await pair(), await pair(), await pair()];
  halfEnded[0].end('question');
  assert.equal(await text(halfEnded[1]), 'question');
  const [up, down] = [numbers(16 << 20, 0), numbers(16 << 20, 1 << 30)];
  full[0].end(up);
  full[1].end(down);
  await Promise.all(full.map(stalled));
  for (const round of ['first', 'second']) {
    let moved = replace();
    // On a busy machine the kernel may only seem to take no more.
    for (; moved.bytes === 0; moved = replace()) await sleep(20);
    assert.equal(moved.connections, 3);
    for (const [from, to] of [idle, [idle[1], idle[0]] as const]) {
      from.write(round);
      assert.equal(String((await once(to, 'data'))[0]), round);
    }
  }
  halfEnded[1].end('answer');
  assert.equal(await text(halfEnded[0]), 'answer');
  const got = await Promise.all([received(full[1]), received(full[0])]);
  assert.deepEqual(got.map(digest), [up, down].map(digest));
  // The idle one alone is left, and is not waited for.
  await waitForUnderWay(proxy().rest, LIMITS);
  idle[0].end();
  assert.equal(await text(idle[1]), '');
  idle[1].end();
  assert.equal(await text(idle[0]), '');
});

test('a connection that its server has not taken goes on in another process, and is waited for', async () => {
  const { fd, port } = bindPort('tcp', HOST, 0);
  cleanup.push(() => closeFd(fd));
  // One waits to be accepted, and the kernel lets further ones try again after a second.
  listen(fd, 0);
  const first = opened(connect(port, HOST));
  await once(first, 'connect');
  const { port: proxiedPort, proxy, replace } = proxied({ host: HOST, port });
  const client = opened(connect(proxiedPort, HOST));
  client.write('question');
  while (replace().connections === 0) await sleep(10);
  while (!isAskedFor(port)) await sleep(10);
  // The second process has read the question, so the third one has it from there, and the fourth from the third.
  await waitFor('the question to move', () => replace().bytes > 0);
  assert.deepEqual(replace(), { connections: 1, bytes: 'question'.length });
  let isAnswered = false;
  const serve = async (): Promise<void> => {
    for (let accepted = acceptFrom(fd); accepted !== undefined; accepted = acceptFrom(fd)) closeFd(accepted);
    for (let accepted = acceptFrom(fd); ; accepted = acceptFrom(fd)) {
      if (accepted === undefined) {
        await sleep(10);
        continue;
      }
      const server = opened(new Socket({ fd: accepted, readable: true, writable: true, allowHalfOpen: true }));
      const [question] = (await once(server, 'data')) as [Buffer];
      isAnswered = true;
      server.end(`answer to ${question.toString()}`);
      return;
    }
  };
  const served = serve();
  await waitForUnderWay(proxy().rest, LIMITS);
  assert.ok(isAnswered);
  assert.equal(await text(client), 'answer to question');
  await served;
});
