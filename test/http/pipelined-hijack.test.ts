/**
 * Requests that are sent together with one that hijacks the connection, and with the bytes that belong to whoever
 * hijacks it: each gets its reply, and no byte is lost, wherever the network cuts what the client has sent.
 */
import assert from 'node:assert/strict';
import { once } from 'node:events';
import { connect as connectPlain, type Socket } from 'node:net';
import { after, test } from 'node:test';
import { setTimeout as sleep } from 'node:timers/promises';
import { connect as connectTls } from 'node:tls';
import { conflict } from '../../src/errors/engine-error.js';
import type { Listener } from '../../src/http/listener.js';
import { route } from '../../src/http/route.js';
import { TlsIdentity } from '../../src/http/tls-identity.js';
import { Authority } from '../support/certificates.js';
import { RawConnection } from '../support/http.js';
import { TestFront, UPGRADE } from '../support/test-front.js';
import { waitFor } from '../support/wait.js';

/** Characters of a reply that is larger than what sockets hold. */
const LARGE = 4_000_000;
/** So many of them are more than the memory that the front may take for a client that reads none. */
const REPLIES = 40;

let parked = 0;
const at = new TestFront([
  route('GET', '/large', (x) => x.sendText(200, 'l'.repeat(LARGE))),
  route('GET', '/parked', async (x) => {
    parked++;
    await new Promise<void>((resolve) => x.onClose(resolve));
    parked--;
    throw conflict('nobody reads this');
  }),
]);
let tls: Promise<Listener> | undefined;
after(async () => {
  const listener = await tls;
  await listener?.close(1000);
  await listener?.end(10_000);
});

/** The port of a listener with TLS that serves the same routes. */
async function tlsPort(): Promise<number> {
  const listen = (): Promise<Listener> => {
    const files = { ca: undefined, ...new Authority(at.dir, 'ca').issueServer() };
    const identity = new TlsIdentity({ ...files, minVersion: 'TLSv1.2' });
    return at.front.listen({ kind: 'tcp', host: '127.0.0.1', port: 0, tls: identity });
  };
  return (await (tls ??= listen())).port ?? 0;
}

async function connected(socket: Socket, event = 'connect'): Promise<RawConnection> {
  await once(socket, event);
  socket.setNoDelay(true);
  return new RawConnection(socket);
}

const transports: Readonly<Record<string, () => Promise<RawConnection>>> = {
  unix: () => RawConnection.open(at.path),
  tcp: () => connected(connectPlain({ port: at.port, host: '127.0.0.1', allowHalfOpen: true })),
  tls: async () =>
    connected(connectTls({ port: await tlsPort(), host: '127.0.0.1', rejectUnauthorized: false }), 'secureConnect'),
};

const json = (body: string): string =>
  `Content-Type: application/json\r\nContent-Length: ${body.length}\r\n\r\n${body}`;
const PING = 'GET /_ping HTTP/1.1\r\nHost: x\r\n\r\n';
const HEAD_PING = 'HEAD /_ping HTTP/1.1\r\nHost: x\r\n\r\n';
const LATE = 'POST /late?q=1 HTTP/1.1\r\nHost: x\r\nX-Test: a\r\n\r\n';
const ECHO = `POST /echo HTTP/1.1\r\nHost: x\r\n${json('{"a":"GET / HTTP/1.1"}')}`;
const ABSENT = 'GET /nowhere HTTP/1.1\r\nHost: x\r\n\r\n';
const ATTACH = `POST /containers/a/attach?stream=1 HTTP/1.1\r\n${UPGRADE}\r\n`;
const EXEC = `POST /exec/e/start HTTP/1.1\r\n${UPGRADE}${json('{"Detach":false}')}`;
const INPUT = 'hello GET / HTTP/1.1\r\n\r\n';

/** Each request with a text of its reply that no other has. */
interface Sent {
  readonly request: string;
  readonly replied: string;
}

const ping: Sent = { request: PING, replied: '\r\n\r\nOK' };
const echo: Sent = { request: ECHO, replied: '{"body":{"a":"GET / HTTP/1.1"},"header":0}\n' };
const late: Sent = { request: LATE, replied: '{"header":"a","q":"1"}\n' };
const absent: Sent = { request: ABSENT, replied: '{"message":"page not found"}\n' };

/** Sends all in two writes and reads the replies, what was echoed, and the end. */
async function run(open: () => Promise<RawConnection>, before: readonly Sent[], hijack: string, cut: number) {
  const connection = await open();
  const all = `${before.map(({ request }) => request).join('')}${hijack}${INPUT}`;
  connection.write(all.slice(0, cut));
  const replies: string[] = [];
  let end = 0;
  for (const { request } of before) {
    end += request.length;
    // A client whose requests have gone out whole may well read the replies before it goes on.
    if (end === cut) {
      while (replies.length <= before.findIndex((sent) => sent.request === request))
        replies.push(await connection.readThrough(before[replies.length]?.replied ?? ''));
    }
  }
  if (cut < all.length) {
    await sleep(3);
    connection.write(all.slice(cut));
  }
  for (const { replied } of before.slice(replies.length)) replies.push(await connection.readThrough(replied));
  const head = await connection.readThrough('\r\n\r\n');
  let echoed = '';
  while (echoed.replaceAll('><', '') !== `<${INPUT}>`) echoed += await connection.readThrough('>');
  connection.halfClose();
  const last = (await connection.readToEnd()).toString();
  connection.close();
  return { replies, head, last };
}

/** One parser is behind each door, so TCP and TLS, whose handshakes cost more, are cut at fewer places. */
const STEPS: Readonly<Record<string, number>> = { unix: 1, tcp: 3, tls: 3 };

async function inBatches(count: number, action: (i: number) => Promise<void>): Promise<void> {
  for (let from = 0; from < count; from += 40)
    await Promise.all(Array.from({ length: Math.min(40, count - from) }, (_, i) => action(from + i)));
}

for (const [name, open] of Object.entries(transports)) {
  const courses = { 'a GET': [ping], 'a POST with a body': [echo], 'several requests': [ping, late, absent, echo] };
  for (const [what, requests] of Object.entries(courses)) {
    test(`over ${name}, ${what} before a hijack with bytes behind it, cut at places ${STEPS[name]} apart`, async () => {
      for (const hijack of what === 'several requests' ? [ATTACH] : [ATTACH, EXEC]) {
        const length = requests.reduce((sum, { request }) => sum + request.length, 0) + hijack.length + INPUT.length;
        const step = STEPS[name] ?? 1;
        await inBatches(Math.ceil(length / step), async (i) => {
          // The last cut is behind everything.
          const cut = length - i * step;
          const { replies, head, last } = await run(open, requests, hijack, cut).catch((cause: unknown) => {
            throw new Error(`cut after ${cut} of ${length} bytes`, { cause });
          });
          for (const reply of replies) assert.match(reply, /^HTTP\/1\.1 \d{3} [^]*\r\nContent-Length: \d+\r\n/);
          assert.match(head, /^HTTP\/1\.1 101 UPGRADED\r\n/);
          assert.equal(last, 'bye', `cut after ${cut}`);
        });
      }
    });
  }

  test(`over ${name}, requests and input that come byte by byte`, async () => {
    const connection = await open();
    for (const byte of `${PING}${ECHO}${ATTACH}${INPUT}`) await connection.writeAll(byte);
    await connection.readThrough(ping.replied);
    await connection.readThrough(echo.replied);
    await connection.readThrough('Upgrade: tcp\r\n\r\n');
    let echoed = '';
    while (echoed.replaceAll('><', '') !== `<${INPUT}>`) echoed += await connection.readThrough('>');
    connection.close();
  });
}

test('replies have no body where the request is a HEAD, and none is lost when the client ends early', async () => {
  const connection = await RawConnection.open(at.path);
  connection.write(`${HEAD_PING}${PING}${LATE}${ATTACH}hello`);
  connection.halfClose();
  const all = (await connection.readToEnd()).toString();
  const parts = all.split('\r\n\r\n');
  assert.equal(parts.length, 5, all);
  assert.match(parts[1] ?? '', /^HTTP\/1\.1 200 OK\r\n/);
  assert.ok(all.includes('OKHTTP/1.1 200 OK'), all);
  assert.ok(all.endsWith('<hello>bye'), all);
  connection.close();
});

test('thousands of requests at once are answered in order, and others are served meanwhile', async () => {
  const connection = await RawConnection.open(at.path);
  const count = 3000;
  const requests = Array.from({ length: count }, (_, i) => `GET /images/n${i}/json HTTP/1.1\r\nHost: x\r\n\r\n`);
  connection.write(`${requests.join('')}${ATTACH}hello`);
  await connection.readThrough('"name":"n9"');
  const other = await RawConnection.open(at.path);
  other.write(PING);
  await other.readThrough(ping.replied);
  other.close();
  for (let i = 10; i < count; i++) await connection.readThrough(`"name":"n${i}"`);
  assert.match(await connection.readThrough('>'), /\r\n\r\n<hello>$/);
  connection.close();
});

test('a client that does not read its replies holds up only itself', async () => {
  const before = process.memoryUsage().rss;
  const socket = connectPlain(at.path);
  socket.pause();
  socket.write('GET /large HTTP/1.1\r\nHost: x\r\n\r\n'.repeat(REPLIES));
  await sleep(300);
  assert.ok(process.memoryUsage().rss - before < 100_000_000, 'one reply is kept at a time');
  let bytes = 0;
  socket.on('data', (piece: Buffer) => (bytes += piece.length));
  socket.resume();
  await waitFor('all replies', () => bytes > REPLIES * LARGE);
  socket.destroy();
});

test('a client that has left its pipelined requests behind is noticed', async () => {
  const connection = await RawConnection.open(at.path);
  connection.write(`GET /parked HTTP/1.1\r\nHost: x\r\n\r\n${PING}`);
  await waitFor('the request to be served', () => parked === 1);
  connection.close();
  await waitFor('the request to be given up', () => parked === 0);
});
