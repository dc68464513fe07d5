/** Copies of many pieces, from clients that are fast (src/workers/copy-memory.ts). */
import assert from 'node:assert/strict';
import { createHash, randomBytes } from 'node:crypto';
import { readdirSync } from 'node:fs';
import { test } from 'node:test';
import { gzipSync } from 'node:zlib';
import { Copies, onDockerd } from '../support/copies.js';
import { call, RawConnection } from '../support/http.js';
import { tarOf } from '../support/image-builder.js';
import { waitFor } from '../support/wait.js';

const MB = 1_000_000;
const CHUNK_BYTES = 32 * 1024;
const copies = new Copies();
const pattern = randomBytes(3 * MB + 1);
const sha256 = (bytes: Buffer): string => createHash('sha256').update(bytes).digest('hex');
/** Bytes of which no two pieces are alike, of a length that no block has. */
const large = Buffer.concat([...Array.from({ length: 33 }, () => pattern), Buffer.from('the end')]);

function chunks(bytes: Buffer): Buffer {
  const parts: Buffer[] = [];
  for (let at = 0; at < bytes.length; at += CHUNK_BYTES) {
    const piece = bytes.subarray(at, at + CHUNK_BYTES);
    parts.push(Buffer.from(`${piece.length.toString(16)}\r\n`), piece, Buffer.from('\r\n'));
  }
  return Buffer.concat([...parts, Buffer.from('0\r\n\r\n')]);
}

async function begun(container: string, path: string, body: Buffer): Promise<RawConnection> {
  const connection = await RawConnection.open(copies.engine.socketPath);
  connection.write(`PUT ${copies.url(container, path)} HTTP/1.1\r\nHost: engine\r\nTransfer-Encoding: chunked\r\n\r\n`);
  connection.write(body);
  return connection;
}

async function put(container: string, path: string, body: Buffer): Promise<{ status: number; text: string }> {
  const connection = await begun(container, path, body);
  const text = (await connection.readToEnd(60_000)).toString();
  connection.close();
  return { status: Number(text.split(' ')[1]), text };
}

const sumOf = async (container: string, path: string): Promise<string> =>
  (await copies.ok('exec', container, 'sha256sum', path)).split(' ')[0] ?? '';

test('a large file arrives as it is, between others and with its attributes', async () => {
  await copies.running('target', 'mkdir /in');
  const holes = Buffer.concat([
    Buffer.alloc(20 * MB),
    large.subarray(0, 30 * MB + 123),
    Buffer.alloc(20 * MB),
    large.subarray(0, 100),
  ]);
  const small = randomBytes(70_000);
  const body = chunks(
    tarOf([
      { path: 'before', content: small },
      { path: 'large', content: large, mode: 0o4755, uid: 12, gid: 34 },
      { path: 'between', content: small },
      { path: 'holes', content: holes },
      { path: 'after', content: small },
    ]),
  );
  assert.equal((await put('target', '/in', body)).status, 200);
  for (const [name, content] of [
    ['before', small],
    ['large', large],
    ['between', small],
    ['holes', holes],
    ['after', small],
  ] as const)
    assert.equal(await sumOf('target', `/in/${name}`), sha256(content), name);
  // Bits that a write would take away, and an owner who has not made it.
  assert.equal(await copies.ok('exec', 'target', 'stat', '-c', '%a %u %g', '/in/large'), '4755 12 34');
  const blocks = Number(await copies.ok('exec', 'target', 'stat', '-c', '%b', '/in/holes'));
  if (!onDockerd) assert.ok(blocks * 512 < 32 * MB, `${blocks} blocks`);
});

test('a compressed archive arrives as it is', async () => {
  const content = Buffer.concat([pattern, Buffer.alloc(30 * MB, 'abc'), pattern]);
  const body = chunks(gzipSync(tarOf([{ path: 'zipped', content }]), { level: 1 }));
  assert.equal((await put('target', '/in', body)).status, 200);
  assert.equal(await sumOf('target', '/in/zipped'), sha256(content));
});

test('more copies at once than there are threads for them', async () => {
  const names = ['a', 'b', 'c', 'd', 'e'];
  const bodies = names.map((name, index) => chunks(tarOf([{ path: name, content: large.subarray(index) }])));
  const replies = await Promise.all(bodies.map((body) => put('target', '/in', body)));
  assert.deepEqual(
    replies.map(({ status }) => status),
    names.map(() => 200),
  );
  for (const [index, name] of names.entries())
    assert.equal(await sumOf('target', `/in/${name}`), sha256(large.subarray(index)), name);
});

test('a full disk is told in the middle of a file, and leaves room for the next one', async () => {
  await copies.running('small', 'true', '--tmpfs', '/small:size=60m');
  const body = chunks(tarOf([{ path: 'file', content: large }]));
  const { status, text } = await put('small', '/small', body);
  assert.equal(status, 500);
  assert.match(text, onDockerd ? /no space left/ : /unpacking \\"file\\": no space left on device/);
  await copies.ok('exec', 'small', 'rm', '-f', '/small/file');
  const fitting = tarOf([{ path: 'file', content: large.subarray(0, 40 * MB) }]);
  assert.equal((await put('small', '/small', chunks(fitting))).status, 200);
  assert.equal(await sumOf('small', '/small/file'), sha256(large.subarray(0, 40 * MB)));
  await copies.ok('rm', '-f', 'small');
});

test('clients that leave in the middle leave nothing open', { skip: onDockerd }, async () => {
  const openFiles = (): number => readdirSync(`/proc/${copies.engine.pid}/fd`).length;
  const body = chunks(tarOf([{ path: 'left', content: large }]));
  const before = openFiles();
  for (let time = 0; time < 3; time++) {
    const connection = await begun('target', '/in', body.subarray(0, 70 * MB + time * 12_345));
    const isThere = async (): Promise<boolean> => {
      const { status } = await call(copies.engine.socketPath, 'HEAD', copies.url('target', '/in/left'));
      return status === 200 && (await copies.stat('target', '/in/left')).size > 65 * MB;
    };
    await waitFor('nearly all that was sent to be written', isThere);
    connection.close();
    await waitFor(
      () => `descriptors to be closed: ${openFiles()}, ${before} before`,
      () => openFiles() <= before + 3,
    );
    await copies.ok('exec', 'target', 'rm', '/in/left');
  }
  assert.equal((await put('target', '/in', body)).status, 200);
  assert.equal(await sumOf('target', '/in/left'), sha256(large));
});
