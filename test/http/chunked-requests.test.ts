/** Bodies in chunks, and replies that come before the end of a request: nothing is taken for a request that is none. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { setTimeout as sleep } from 'node:timers/promises';
import { RawConnection } from '../support/http.js';
import { MIB, TestFront } from '../support/test-front.js';

const at = new TestFront();

const HEAD = 'POST /echo HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n';
const PING = 'GET /_ping HTTP/1.1\r\nHost: x\r\n\r\n';
const SMUGGLED =
  'POST /echo HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 10\r\n\r\n"smuggled"';

/** All that comes back to bytes that are sent at once, or in pieces. */
async function exchange(bytes: string | readonly string[], before = ''): Promise<string> {
  const connection = await RawConnection.open(at.path);
  try {
    if (before !== '') {
      connection.write(before);
      await connection.readThrough('\r\n\r\nOK', 60_000);
    }
    for (const piece of typeof bytes === 'string' ? [bytes] : bytes) {
      connection.write(piece);
      await new Promise((resolve) => setImmediate(resolve));
    }
    return (await connection.readToEnd(60_000)).toString();
  } finally {
    connection.close();
  }
}

const statuses = (reply: string): number[] =>
  [...reply.matchAll(/HTTP\/1\.1 (\d{3}) /g)].map(([, status]) => Number(status));

test('a body in chunks arrives, however it is cut, with extensions and trailers', async () => {
  const body = '6;a=b\r\n{"a":[\r\n2\r\n1]\r\n1\r\n}\r\n0\r\nTrailer: x\r\n\r\n';
  for (const pieces of [[HEAD + body], [HEAD, body], [HEAD, ...body.split('')]]) {
    const reply = await exchange(pieces);
    assert.match(
      reply,
      /^HTTP\/1\.1 201 Created\r\n[^]*\r\nConnection: close\r\n[^]*\{"body":\{"a":\[1\]\},"header":0\}\n$/,
      JSON.stringify(pieces),
    );
  }
});

test('a body in chunks takes no reply away from a request that needs none', async () => {
  for (const method of ['GET', 'DELETE', 'OPTIONS'])
    for (const body of ['0\r\n\r\n', '3\r\nabc\r\n0\r\nA: b\r\n\r\n'])
      for (const before of ['', PING]) {
        const head = `${method} /images/a/json HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n`;
        const reply = await exchange(`${head}${body}${SMUGGLED}`, before);
        const name = `${method} ${JSON.stringify(body)} after ${before}`;
        assert.doesNotMatch(reply, /smuggled/, name);
        if (method === 'GET') assert.match(reply, /200 OK\r\n[^]*\r\nConnection: close\r\n[^]*"name":"a"/, name);
        else
          assert.ok(
            statuses(reply).every((status) => status >= 200),
            name,
          );
      }
  const bad = `GET /images/a/json HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nabc\r\n0\r\n\r\n`;
  assert.deepEqual(statuses(await exchange(bad + SMUGGLED)), [200]);
});

test('trailers and what comes behind a body are never a request', async () => {
  for (const behind of [
    '0\r\n\r\n',
    `0\r\n${SMUGGLED}`,
    `0\r\nA: b\r\n\r\n${SMUGGLED}`,
    '0\r\nGET /_ping HTTP/1.1\r\nHost: x\r\n\r\n',
  ]) {
    for (const before of ['', PING]) {
      const reply = await exchange(`${HEAD}2\r\n{}\r\n${behind}${SMUGGLED}`, before);
      assert.doesNotMatch(reply, /smuggled|\nOK/, `${JSON.stringify(behind)} after ${before}`);
      // Behind another request the parser may give the connection up before the reply.
      if (before === '') assert.deepEqual(statuses(reply), [201], reply);
      else assert.ok(statuses(reply).length <= 1, reply);
    }
  }
});

test('chunks that are none are refused', async () => {
  for (const body of [
    '0\n\n',
    '2\r\n{}XX0\r\n\r\n',
    '2\n{}\n0\n\n',
    '2\r\n{}\n\n0\r\n\r\n',
    'x\r\n',
    '-2\r\n{}\r\n0\r\n\r\n',
    '0x2\r\n{}\r\n0\r\n\r\n',
    '2\r\n{}\r\n0\r\n\n',
  ]) {
    for (const pieces of [[HEAD + body], [HEAD, ...body.split('')]]) {
      const reply = await exchange(pieces);
      assert.deepEqual(statuses(reply), [400], `${JSON.stringify(body)}: ${reply}`);
      assert.match(reply, /malformed chunked encoding of the request body/);
    }
  }
});

test('a stream begins while the chunks still come, and a client that leaves ends its request', async () => {
  const reply = await exchange([
    'POST /load HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n',
    '2\r\nde\r\n0\r\n\r\n',
  ]);
  assert.match(reply, /^HTTP\/1\.1 200 OK\r\n[^]*\{"bytes":5\}\n\r\n0\r\n\r\n$/);
  // Behind many requests the parser reads the body; the reply is whole there, too.
  const second = await RawConnection.open(at.path);
  for (let i = 0; i < 6; i++) {
    second.write(PING);
    await second.readThrough('\r\n\r\nOK', 60_000);
  }
  second.write('POST /load HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n');
  await new Promise((resolve) => setImmediate(resolve));
  second.write('2\r\nde\r\n0\r\n\r\n');
  assert.match(
    await second.readThrough('0\r\n\r\n', 60_000),
    /^HTTP\/1\.1 200 OK\r\n[^]*\r\nConnection: close\r\n[^]*\r\n\r\nc\r\n\{"bytes":5\}\n\r\n0\r\n\r\n$/,
  );
  second.close();
  const leaving = await RawConnection.open(at.path);
  leaving.write(`${HEAD}5\r\n{"a`);
  leaving.halfClose();
  assert.equal((await leaving.readToEnd(60_000)).toString(), '');
  leaving.close();
});

test(
  'a reply that does not wait for the body reaches a client that sends all of it first',
  { timeout: 120_000 },
  async () => {
    const all = 'x'.repeat(8 * MIB);
    const framings = [
      [`Content-Length: ${all.length}\r\nConnection: close`, all],
      ['Transfer-Encoding: chunked', `${all.length.toString(16)}\r\n${all}\r\n0\r\n\r\n`],
    ] as const;
    for (const [framing, body] of framings) {
      for (const [target, status] of [
        ['PUT /refuse', 404],
        ['PUT /nowhere', 404],
        ['POST /echo', 400],
      ] as const) {
        const connection = await RawConnection.open(at.path);
        await connection.writeAll(`${target} HTTP/1.1\r\nHost: x\r\n${framing}\r\n\r\n`);
        // This fails when the other side closes before it has read.
        await connection.writeAll(body);
        assert.deepEqual(statuses((await connection.readToEnd(60_000)).toString()), [status], `${target} ${framing}`);
        connection.close();
      }
    }
  },
);

test('a head that is refused is answered, also when bytes follow', async () => {
  for (const framing of [
    'Content-Length: 2\r\nContent-Length: 2',
    'Transfer-Encoding: chunked\r\nContent-Length: 2',
    'Transfer-Encoding: xchunked',
  ]) {
    for (const behind of ['', '{}', `{}${PING}`, `0\r\n\r\n${SMUGGLED}`, SMUGGLED]) {
      const reply = await exchange(`POST /echo HTTP/1.1\r\nHost: x\r\n${framing}\r\n\r\n${behind}`);
      assert.deepEqual(statuses(reply), [400], `${framing} ${JSON.stringify(behind)}: ${reply}`);
      assert.doesNotMatch(reply, /smuggled/);
    }
  }
});

test('requests of HTTP/1.0 are served, and nothing behind them is', async () => {
  const reply = async (bytes: string, { rest = '', behind = '' } = {}): Promise<string> => {
    const connection = await RawConnection.open(at.path);
    connection.write(bytes);
    await sleep(5);
    if (rest !== '') connection.write(rest);
    // A write to a connection that the server has closed ends the reading as well, so the head is read first.
    const head = await connection.readThrough('\r\n\r\n');
    if (behind !== '') connection.write(behind);
    const all = head + (await connection.readToEnd()).toString();
    connection.close();
    return all;
  };
  const next = 'GET /at-once HTTP/1.1\r\nHost: x\r\n\r\n';
  const json = 'Content-Type: application/json\r\nContent-Length: 7\r\n\r\n{"a":1}';
  for (const [request, pattern] of [
    ['GET /_ping HTTP/1.0\r\nConnection: keep-alive\r\n\r\n', /^HTTP\/1\.1 200 [^]*\r\nConnection: close\r\n\r\nOK$/],
    [
      'HEAD /_ping HTTP/1.0\r\nHost: x\r\n\r\n',
      /^HTTP\/1\.1 200 [^]*\r\nContent-Length: 0\r\nConnection: close\r\n\r\n$/,
    ],
    ['GET /images/a/json?f=x HTTP/1.0\r\n\r\n', /\r\n\r\n{"name":"a","version":"[\d.]+","filter":"x"}\n$/],
    [`POST /echo HTTP/1.0\r\n${json}`, /^HTTP\/1\.1 201 [^]*\r\n\r\n{"body":{"a":1},"header":0}\n$/],
    [
      'POST /wait HTTP/1.0\r\n\r\n',
      /^HTTP\/1\.1 200 (?![^]*chunked)[^]*\r\nConnection: close\r\n\r\n{"StatusCode":0}\n$/,
    ],
    ['GET /nothing HTTP/1.0\r\n\r\n', /^HTTP\/1\.1 404 [^]*\r\n\r\n{"message":"page not found"}\n$/],
    ['POST /echo HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n', /^HTTP\/1\.1 505 /],
    ['POST /echo HTTP/1.0\r\nContent-Length: 2\r\nContent-Length: 2\r\n\r\n{}', /^HTTP\/1\.1 400 /],
    ['POST /containers/a/attach HTTP/1.0\r\n\r\n', /^HTTP\/1\.1 505 /],
    ['HEAD /nothing HTTP/1.0\r\n\r\n', /^HTTP\/1\.1 404 [^]*\r\nContent-Length: 29\r\nConnection: close\r\n\r\n$/],
    ['GET _ping HTTP/1.0\r\n\r\n', /^HTTP\/1\.1 400 /],
  ] as const) {
    assert.match(await reply(request), pattern, request);
    const crowded = await reply(request + next, { behind: next });
    assert.doesNotMatch(crowded, /HTTP\/1\.1 204/, request);
    assert.match(crowded, pattern, request);
  }
  assert.match(
    await reply(`POST /echo HTTP/1.0\r\n${json.slice(0, -2)}`, { rest: json.slice(-2) }),
    /{"body":{"a":1},/,
  );
});
