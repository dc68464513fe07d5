/** Where one request ends and the next begins, whenever the bytes between them arrive. */
import assert from 'node:assert/strict';
import { connect } from 'node:net';
import { once } from 'node:events';
import { test } from 'node:test';
import { RawConnection } from '../support/http.js';
import { TestFront } from '../support/test-front.js';

const at = new TestFront();

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
