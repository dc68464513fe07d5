/** Where one request ends and the next begins, whenever the bytes between them arrive. */
import assert from 'node:assert/strict';
import { connect, type NetConnectOpts } from 'node:net';
import { once } from 'node:events';
import { test } from 'node:test';
import { BrowserGuard } from '../../src/http/browser-guard.js';
import { route } from '../../src/http/route.js';
import { RawConnection } from '../support/http.js';
import { TestFront } from '../support/test-front.js';

let unwanted = 0;
const at = new TestFront([
  route('POST', '/unwanted', (x) => {
    unwanted++;
    x.sendEmpty(204);
  }),
  route('GET', '/large', (x) => x.sendText(200, 'l'.repeat(LARGE))),
]);

/** Characters of a reply that is larger than what sockets hold. */
const LARGE = 4_000_000;
const PING = 'GET /_ping HTTP/1.1\r\nHost: x\r\n\r\n';
const POST = 'POST /optional HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n';
const LATE = 'POST /late?q=1 HTTP/1.1\r\nHost: x\r\n\r\n';

/** The front runs in this process: in so many turns of the event loop it goes through all states of a connection. */
const TURNS = 12;

const turns = async (count: number): Promise<void> => {
  for (let i = 0; i < count; i++) await new Promise((resolve) => setImmediate(resolve));
};

const doors: Readonly<Record<string, () => Promise<RawConnection>>> = {
  unix: () => RawConnection.open(at.path),
  tcp: async () => {
    const socket = connect(at.port, '127.0.0.1').setNoDelay();
    await once(socket, 'connect');
    return new RawConnection(socket);
  },
};

for (const [name, open] of Object.entries(doors)) {
  test(`over ${name}, an empty line behind a request is skipped in whatever moment it arrives`, async () => {
    const courses = [[`\r\n${PING}`], ['\r\n', PING], ['\r', '\n', PING], `\r\n${PING}`.split('')].flatMap((pieces) =>
      [PING, POST, LATE].flatMap((first) => [0, 1, 2].map((before) => ({ pieces, first, before }))),
    );
    for (let gap = 0; gap <= TURNS; gap++)
      await Promise.all(
        courses.map(async ({ pieces, first, before }) => {
          const connection = await open();
          const what = `${JSON.stringify(pieces)} ${gap} turns after ${first.slice(0, 14)}, the ${before + 1}th`;
          try {
            for (let i = 0; i < before; i++) {
              connection.write(PING);
              await connection.readThrough('\r\n\r\nOK');
            }
            connection.write(first);
            for (const piece of pieces) {
              await turns(gap);
              connection.write(piece);
            }
            const reply = await connection.readThrough(first === PING ? '\r\n\r\nOK' : '}\n', 5_000);
            assert.match(reply, first === PING ? /^HTTP\/1\.1 200 / : /"q":"1"|"body":"none"/);
            assert.match(await connection.readThrough('\r\n\r\nOK', 5_000), /^HTTP\/1\.1 200 /);
          } catch (cause) {
            throw new Error(what, { cause });
          } finally {
            connection.close();
          }
        }),
      );
  });
}

test('a client that sends empty lines for ever is told off', async () => {
  for (const before of ['', PING]) {
    const connection = await RawConnection.open(at.path);
    connection.write(`${before}${'\r\n'.repeat(50_000)}`);
    const reply = (await connection.readToEnd()).toString();
    assert.match(reply, /HTTP\/1\.1 400 [^]*malformed request head/);
    connection.close();
  }
  // A return that remains alone is no line, and no request comes behind it.
  const connection = await RawConnection.open(at.path);
  connection.write('\r');
  assert.match((await connection.readToEnd()).toString(), /^HTTP\/1\.1 400 /);
  connection.close();
});

/** Sends pieces, one in every turn of the event loop. Returns all that comes, with the error that ended it, if any. */
async function ending(target: NetConnectOpts, pieces: readonly string[]): Promise<{ reply: string; error: unknown }> {
  const socket = connect({ ...target, allowHalfOpen: true });
  let [reply, error]: [string, unknown] = ['', undefined];
  socket.setEncoding('latin1').on('data', (text: string) => (reply += text));
  socket.on('error', (cause) => (error = cause));
  const end = Promise.race([once(socket, 'end').catch(() => undefined), once(socket, 'close')]);
  for (const piece of pieces) {
    socket.write(piece);
    await turns(1);
  }
  await end;
  socket.destroy();
  return { reply, error };
}

test('a reply after which the connection ends is whole, whatever the client has sent behind the request', async () => {
  const next = 'POST /unwanted HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n';
  for (const target of [{ path: at.path }, { port: at.port, host: '127.0.0.1' }])
    for (const close of ['Connection: close', 'connection: x, Close'])
      for (const [line, end] of [
        ['GET /_ping', 'OK'],
        ['GET /large', 'l'.repeat(99)],
        ['POST /late?q=1', '"q":"1"}\n'],
        ['GET /nothing', 'page not found"}\n'],
        ['POST /wait', '0\r\n\r\n'],
      ] as const)
        for (const behind of [[next], ['', next], ['', '', '', next, next], Array<string>(100).fill(next)]) {
          const head = `${line} HTTP/1.1\r\nHost: x\r\n${close}\r\n\r\n`;
          const { reply, error } = await ending(target, [`${head}${behind[0]}`, ...behind.slice(1)]);
          const what = `${line}, ${close}, ${behind.length} behind it: ${reply.slice(0, 500)}`;
          assert.equal(error, undefined, what);
          assert.ok(reply.endsWith(end), what);
          assert.equal(reply.split('HTTP/1.1 ').length, 2, what);
          if (line === 'GET /large') assert.ok(reply.length > LARGE, what);
        }
  assert.equal(unwanted, 0);
});

test('the options of a connection are those of all its headers, wherever the request comes', async () => {
  for (const before of [0, 1, 6])
    for (const fields of [
      'Connection: keep-alive\r\nConnection: close',
      'Connection: x, y\r\nX: y\r\nconnection: CLOSE',
    ])
      for (const line of ['GET /_ping', 'POST /optional', 'POST /late?q=1', 'POST /wait', 'GET /nothing']) {
        const connection = await RawConnection.open(at.path);
        for (let i = 0; i < before; i++) {
          connection.write(PING);
          await connection.readThrough('\r\n\r\nOK');
        }
        connection.write(`${line} HTTP/1.1\r\nHost: x\r\n${fields}\r\n\r\n`);
        const reply = (await connection.readToEnd()).toString();
        assert.match(reply, /^HTTP\/1\.1 [^]*\r\nConnection: close\r\n/, `${line} with ${fields} behind ${before}`);
        connection.close();
      }
  // A second field that says nothing of an end changes nothing.
  const connection = await RawConnection.open(at.path);
  for (let i = 0; i < 6; i++) {
    connection.write('GET /_ping HTTP/1.1\r\nHost: x\r\nConnection: x\r\nConnection: keep-alive\r\n\r\n');
    await connection.readThrough('\r\n\r\nOK');
  }
  connection.close();
});

test('an absolute target is served by its path, with its host, and nothing behind it is', async () => {
  const json = 'Content-Type: application/json\r\n';
  const long = `"${'a'.repeat(20_000)}"`;
  const next = 'POST /unwanted HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n';
  for (const [request, pattern] of [
    ...['http://h', 'HTTP://u:p@h', 'https://h:1', 'foo://h', 'http://', 'http://[::1]:2'].map(
      (before) => [`GET ${before}/_ping HTTP/1.1\r\nHost: x\r\n\r\n`, /^HTTP\/1\.1 200 [^]*\r\n\r\nOK$/] as const,
    ),
    ['GET http://h/images/a/json?f=x HTTP/1.0\r\n\r\n', /"filter":"x"}\n$/],
    ['GET http://h/v1.99/_ping HTTP/1.1\r\nHost: x\r\n\r\n', /^HTTP\/1\.1 400 [^]*is too new/],
    ['GET http://h?a=b HTTP/1.1\r\nHost: x\r\n\r\n', /^HTTP\/1\.1 404 /],
    [
      `POST http://h/echo HTTP/1.1\r\nHost: x\r\n${json}Content-Length: ${long.length}\r\n\r\n${long}`,
      /aa","header":0}\n$/,
    ],
    [
      `POST http://h/echo HTTP/1.1\r\nHost: x\r\n${json}Transfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n`,
      /{"body":{},/,
    ],
    ['POST http://h/wait HTTP/1.1\r\nHost: x\r\n\r\n', /\r\nTransfer-Encoding: chunked\r\n[^]*\r\n0\r\n\r\n$/],
    ...['http://h h', 'http://h%zz', 'http://h:ab', 'http://[::1', 'http//h', ':', ''].map(
      (before) =>
        [`GET ${before === '' ? 'x' : before}/_ping HTTP/1.1\r\nHost: x\r\n\r\n`, /^HTTP\/1\.1 400 /] as const,
    ),
    ['GET http://h/_ping HTTP/1.1\r\n\r\n', /^HTTP\/1\.1 400 /],
  ] as const)
    for (const pieces of [[request], [`${request}${next}`, next], [request.slice(0, 9), request.slice(9), next]]) {
      const { reply, error } = await ending({ path: at.path }, pieces);
      assert.equal(error, undefined, request);
      assert.match(reply, pattern, request.slice(0, 200));
    }
  assert.equal(unwanted, 0);
});

test('a guard against web pages looks at the host of an absolute target', async () => {
  const guard = new BrowserGuard({ names: [], allowsBrowsers: () => false });
  const listener = await at.front.listen({ kind: 'tcp', host: '127.0.0.1', port: 0, guard });
  try {
    for (const [host, status] of [
      ['elsewhere', 403],
      ['localhost:1', 200],
    ] as const)
      for (const version of ['1.0', '1.1']) {
        const request = `GET http://${host}/_ping HTTP/${version}\r\nHost: localhost\r\n\r\n`;
        const { reply } = await ending({ port: listener.port ?? 0, host: '127.0.0.1' }, [request]);
        assert.match(reply, new RegExp(`^HTTP/1.1 ${status} `), request);
      }
  } finally {
    await listener.close(100);
  }
});
