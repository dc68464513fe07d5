/**
 * Archives as they come over connections of all kinds: those that are read past the HTTP parser, and those that are
 * not.
 */
import assert from 'node:assert/strict';
import { randomBytes } from 'node:crypto';
import { readdirSync } from 'node:fs';
import { test } from 'node:test';
import { setTimeout as sleep } from 'node:timers/promises';
import { Copies, onDockerd } from '../support/copies.js';
import { call, RawConnection } from '../support/http.js';
import { tarOf } from '../support/image-builder.js';
import { waitFor } from '../support/wait.js';

const copies = new Copies();
const content = randomBytes(300_000);
const tar = tarOf([{ path: 'sent', content }]);

const head = (method: string, container: string, ...headers: string[]): string =>
  [`${method} ${copies.url(container, '/tmp')} HTTP/1.1`, 'Host: engine', ...headers, '', ''].join('\r\n');
const CHUNKED = 'Transfer-Encoding: chunked';

function chunks(bytes: Buffer, size: number): Buffer {
  const parts: Buffer[] = [];
  for (let at = 0; at < bytes.length; at += size) {
    const piece = bytes.subarray(at, at + size);
    parts.push(Buffer.from(`${piece.length.toString(16)}\r\n`), piece, Buffer.from('\r\n'));
  }
  return Buffer.concat([...parts, Buffer.from('0\r\n\r\n')]);
}

async function status(connection: RawConnection): Promise<number> {
  return Number((await connection.readThrough('\r\n\r\n')).split(' ')[1]);
}

async function arrived(container: string): Promise<void> {
  const { body } = await call(copies.engine.socketPath, 'GET', copies.url(container, '/tmp/sent'));
  assert.ok(body.subarray(512, 512 + content.length).equals(content));
  await copies.ok('exec', container, 'rm', '/tmp/sent');
}

test('an upload may be first on its connection or follow other requests, sized or in chunks of any size', async () => {
  await copies.ok('run', '-d', '--name', 'target', copies.image, 'sleep', '1000');
  for (const before of [[], ['HEAD'], ['HEAD', 'HEAD'], ['GET']]) {
    for (const [framing, body] of [
      [`Content-Length: ${tar.length}`, tar],
      [CHUNKED, chunks(tar, 777)],
      [CHUNKED, chunks(tar, 200_000)],
    ] as const) {
      const connection = await RawConnection.open(copies.engine.socketPath);
      for (const method of before) {
        connection.write(method === 'HEAD' ? head('HEAD', 'target') : 'GET /_ping HTTP/1.1\r\nHost: engine\r\n\r\n');
        assert.equal(await status(connection), 200);
        if (method === 'GET') await connection.readThrough('OK');
        await sleep(20);
      }
      connection.write(head('PUT', 'target', framing));
      for (let at = 0; at < body.length; at += 99_999) {
        connection.write(body.subarray(at, at + 99_999));
        await sleep(1);
      }
      assert.equal(await status(connection), 200, `${before.join()} ${framing}`);
      connection.close();
      await arrived('target');
    }
  }
});

test('what comes right behind an upload is no part of it', async () => {
  for (const [framing, body] of [
    [`Content-Length: ${tar.length}`, tar],
    [CHUNKED, chunks(tar, 4096)],
  ] as const) {
    const connection = await RawConnection.open(copies.engine.socketPath);
    connection.write(
      Buffer.concat([
        Buffer.from(head('PUT', 'target', framing)),
        body,
        Buffer.from('GET /_ping HTTP/1.1\r\nHost: engine\r\n\r\n'),
      ]),
    );
    assert.equal(await status(connection), 200);
    connection.close();
    await arrived('target');
  }
});

test('what cannot be unpacked is answered while the client still sends', async () => {
  for (const [container, framing, body, expected] of [
    ['nobody', CHUNKED, chunks(Buffer.alloc(3_000_000), 50_000), 404],
    ['nobody', 'Content-Length: 3000000', Buffer.alloc(3_000_000), 404],
    ['target', CHUNKED, chunks(Buffer.alloc(3_000_000, 'no tar'), 50_000), onDockerd ? 500 : 400],
    // dockerd has no words for bad chunks.
    ...(onDockerd
      ? []
      : ([
          ['target', CHUNKED, Buffer.from('5\r\nabcdefg\r\n'), 400],
          ['target', CHUNKED, Buffer.from('nope\r\n'), 400],
        ] as const)),
  ] as const) {
    const connection = await RawConnection.open(copies.engine.socketPath);
    connection.write(head('PUT', container, framing));
    connection.write(body);
    assert.equal(await status(connection), expected, `${container} ${framing}`);
    connection.close();
  }
});

test('a place that is not there is told to the client, and to nobody as a bug', async () => {
  for (const place of ['/nowhere', '/bin/busybox']) {
    const reply = await call(copies.engine.socketPath, 'PUT', copies.url('target', place), { body: tar });
    assert.equal(reply.status, place === '/nowhere' ? 404 : 400, reply.text);
  }
  if (!onDockerd) assert.doesNotMatch(copies.engine.log, /unhandled rejection/);
});

test('clients that leave, at once or in the middle, leave nothing open', { skip: onDockerd }, async () => {
  const openFiles = (): number => readdirSync(`/proc/${copies.engine.pid}/fd`).length;
  const before = openFiles();
  for (const sent of [0, 100, 100_000, 100, 0]) {
    for (const framing of [CHUNKED, `Content-Length: ${tar.length}`]) {
      const connection = await RawConnection.open(copies.engine.socketPath);
      connection.write(head('PUT', 'target', framing));
      connection.write((framing === CHUNKED ? chunks(tar, 4096) : tar).subarray(0, sent));
      await sleep(30);
      connection.close();
    }
  }
  await waitFor(
    () => `descriptors to be closed: ${openFiles()}, ${before} before`,
    () => openFiles() <= before + 3,
  );
  await copies.ok('rm', '-f', 'target');
});

test('a daemon that is told to end does not wait for an upload that stalls', { skip: onDockerd }, async () => {
  await copies.ok('run', '-d', '--name', 'stalled', copies.image, 'sleep', '1000');
  const connection = await RawConnection.open(copies.engine.socketPath);
  connection.write(head('PUT', 'stalled', `Content-Length: ${tar.length}`));
  connection.write(tar.subarray(0, 1000));
  await sleep(100);
  await copies.ok('rm', '-f', 'stalled');
  const ending = connection.readToEnd(60_000);
  await copies.engine.stop();
  await ending;
  connection.close();
});
