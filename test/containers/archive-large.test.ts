/** Large copies from fast clients, for which a second thread writes (src/workers/copy-memory.ts). */
import assert from 'node:assert/strict';
import { createHash, randomBytes } from 'node:crypto';
import { readdirSync, readFileSync } from 'node:fs';
import { test } from 'node:test';
import { setImmediate as nextTurn } from 'node:timers/promises';
import { gzipSync } from 'node:zlib';
import { Copies, onDockerd } from '../support/copies.js';
import { call, RawConnection } from '../support/http.js';
import { tarOf } from '../support/image-builder.js';
import { waitFor } from '../support/wait.js';

const MB = 1_000_000;
const CHUNK_BYTES = 32 * 1024;
const TRIES = 30;
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

/** Bytes that each thread of the daemon has read and written so far. */
function threads(): Map<string, { readonly read: number; readonly written: number }> {
  const tasks = `/proc/${copies.engine.pid}/task`;
  const found = readdirSync(tasks).flatMap((id) => {
    try {
      const [, read, written] = /^rchar: (\d+)\nwchar: (\d+)$/m.exec(readFileSync(`${tasks}/${id}/io`, 'utf8')) ?? [];
      return [[id, { read: Number(read), written: Number(written) }] as const];
    } catch {
      return []; // It has just ended.
    }
  });
  return new Map(found);
}

/** True if a thread wrote so much since `before`, and received nothing. */
function hasWriter(before: ReturnType<typeof threads>, bytes: number): boolean {
  return [...threads()].some(([id, { read, written }]) => {
    const earlier = before.get(id) ?? { read: 0, written: 0 };
    return written - earlier.written >= bytes && read - earlier.read < MB;
  });
}

/** Repeats a copy until a second thread has written for it: on a busy machine a client may be too slow for that. */
async function withWriter(bytes: number, copy: () => Promise<unknown>): Promise<void> {
  for (let tries = 1; tries <= TRIES; tries++) {
    const before = threads();
    const state = { isOver: false, isSeen: false };
    const copying = copy().finally(() => (state.isOver = true));
    while (!state.isOver && !state.isSeen) {
      state.isSeen = hasWriter(before, bytes);
      await nextTurn();
    }
    await copying;
    if (state.isSeen || hasWriter(before, bytes) || onDockerd) return;
  }
  assert.fail(`no thread but the one that received has written ${bytes} bytes, ${TRIES} times`);
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
  await withWriter(30 * MB, async () => assert.equal((await put('target', '/in', body)).status, 200));
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

test('more copies at once than there are threads to write for them', async () => {
  const names = ['a', 'b', 'c', 'd', 'e'];
  const bodies = names.map((name, index) => chunks(tarOf([{ path: name, content: large.subarray(index) }])));
  await withWriter(20 * MB, async () => {
    const replies = await Promise.all(bodies.map((body) => put('target', '/in', body)));
    assert.deepEqual(
      replies.map(({ status }) => status),
      names.map(() => 200),
    );
  });
  for (const [index, name] of names.entries())
    assert.equal(await sumOf('target', `/in/${name}`), sha256(large.subarray(index)), name);
});

test('a full disk is told, whoever has written to it', async () => {
  await copies.running('small', 'true', '--tmpfs', '/small:size=60m');
  const body = chunks(tarOf([{ path: 'file', content: large }]));
  await withWriter(20 * MB, async () => {
    const { status, text } = await put('small', '/small', body);
    assert.equal(status, 500);
    assert.match(text, onDockerd ? /no space left/ : /unpacking \\"file\\": no space left on device/);
    await copies.ok('exec', 'small', 'rm', '-f', '/small/file');
  });
  const fitting = tarOf([{ path: 'file', content: large.subarray(0, 40 * MB) }]);
  await withWriter(20 * MB, async () => assert.equal((await put('small', '/small', chunks(fitting))).status, 200));
  assert.equal(await sumOf('small', '/small/file'), sha256(large.subarray(0, 40 * MB)));
  await copies.ok('rm', '-f', 'small');
});

test('clients that leave in the middle leave nothing open, and no thread lent', { skip: onDockerd }, async () => {
  const openFiles = (): number => readdirSync(`/proc/${copies.engine.pid}/fd`).length;
  const body = chunks(tarOf([{ path: 'left', content: large }]));
  const before = openFiles();
  for (let time = 0; time < 3; time++) {
    await withWriter(20 * MB, async () => {
      const connection = await begun('target', '/in', body.subarray(0, 70 * MB + time * 12_345));
      const isThere = async (): Promise<boolean> => {
        const { status, headers } = await call(copies.engine.socketPath, 'HEAD', copies.url('target', '/in/left'));
        const stat = headers['x-docker-container-path-stat'];
        const { size = 0 } = status === 200 ? JSON.parse(Buffer.from(String(stat), 'base64').toString()) : {};
        return size > 65 * MB;
      };
      await waitFor('nearly all that was sent to be written', isThere);
      connection.close();
      await waitFor(
        () => `descriptors to be closed: ${openFiles()}, ${before} before`,
        () => openFiles() <= before + 3,
      );
      await copies.ok('exec', 'target', 'rm', '/in/left');
    });
  }
  await withWriter(20 * MB, async () => assert.equal((await put('target', '/in', body)).status, 200));
  assert.equal(await sumOf('target', '/in/left'), sha256(large));
});
