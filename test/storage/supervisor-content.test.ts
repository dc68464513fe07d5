/** The content store of a containerd of the tests' own: what is written, resumed, refused, held and collected. */
import assert from 'node:assert/strict';
import { randomBytes } from 'node:crypto';
import { readFile, rm, stat, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { after, before, test } from 'node:test';
import type { NewBlob } from '../../src/ports/content.js';
import { sha256 } from '../support/image-builder.js';
import { SupervisorHarness } from '../support/supervisor-harness.js';

const harness = new SupervisorHarness();
const supervisor = harness.supervisor({ snapshotter: 'overlayfs' });
const { content } = supervisor;
const leases = supervisor.snapshots('overlayfs');
const MEGABYTE = 1 << 20;

before(async () => {
  await supervisor.start();
  await leases.makeLease('one');
  await leases.makeLease('other');
});
after(async () => {
  await supervisor.stop();
  await harness.cleanUp();
});

const blobOf = (bytes: Buffer, labels?: Record<string, string>): NewBlob => ({
  digest: sha256(bytes),
  sizeBytes: bytes.length,
  ...(labels && { labels }),
});

/** The bytes from an offset on, in chunks of an odd size, and an error at `until`. Notes the offsets. */
function source(bytes: Buffer, until = bytes.length): { from: (at: number) => AsyncIterable<Buffer>; asked: number[] } {
  const asked: number[] = [];
  const from = async function* (offset: number): AsyncGenerator<Buffer> {
    asked.push(offset);
    for (let at = offset; at < until; at += 300_001) yield bytes.subarray(at, Math.min(at + 300_001, until));
    if (until < bytes.length) throw new Error('broken off');
  };
  return { from, asked };
}

async function bytesOf(digest: NewBlob['digest']): Promise<Buffer> {
  const chunks: Buffer[] = [];
  for await (const chunk of content.read(digest)) chunks.push(chunk);
  return Buffer.concat(chunks);
}

test('what is written is read back, and held by the lease', async () => {
  const bytes = randomBytes(3 * MEGABYTE + 5);
  const blob = blobOf(bytes);
  assert.equal(await content.sizeOf(blob.digest), undefined);
  await assert.rejects(bytesOf(blob.digest), { kind: 'not-found' });
  await content.write('one', blob, source(bytes).from);
  assert.equal(await content.sizeOf(blob.digest), bytes.length);
  assert.deepEqual(await bytesOf(blob.digest), bytes);
  assert.ok((await content.held('one')).includes(blob.digest));
  await content.collect();
  assert.equal(await content.sizeOf(blob.digest), bytes.length);
  const empty = blobOf(Buffer.alloc(0));
  await content.write('one', empty, source(Buffer.alloc(0)).from);
  assert.equal(await content.sizeOf(empty.digest), 0);
});

test('a write that breaks off goes on from where it was', async () => {
  const bytes = randomBytes(2 * MEGABYTE);
  const blob = blobOf(bytes);
  await assert.rejects(content.write('one', blob, source(bytes, MEGABYTE).from), { message: 'broken off' });
  const rest = source(bytes);
  await content.write('one', blob, rest.from);
  assert.deepEqual(rest.asked, [MEGABYTE]);
  assert.deepEqual(await bytesOf(blob.digest), bytes);
});

test('wrong bytes are refused, leave nothing, and are not gone on from', async () => {
  const [bytes, wrong] = [randomBytes(2 * MEGABYTE), randomBytes(2 * MEGABYTE)];
  const blob = blobOf(bytes);
  const refusal = { kind: 'data-loss', code: 'DIGEST_MISMATCH' };
  for (const other of [wrong, bytes.subarray(1), Buffer.concat([bytes, wrong])])
    await assert.rejects(content.write('one', blob, source(other).from), refusal);
  assert.equal(await content.sizeOf(blob.digest), undefined);
  await assert.rejects(content.write('one', blob, source(wrong, MEGABYTE).from), { message: 'broken off' });
  const right = source(bytes);
  await content.write('one', blob, right.from);
  assert.deepEqual(right.asked, [MEGABYTE, 0]);
  assert.deepEqual(await bytesOf(blob.digest), bytes);
});

test('a blob goes when no lease holds it and no label refers to it', async () => {
  const [layer, document] = [randomBytes(1000), randomBytes(500)];
  await content.write('one', blobOf(layer), source(layer).from);
  await content.write('other', blobOf(layer), () => assert.fail('it is there'));
  await content.write('one', blobOf(document), source(document).from);
  const labels = { 'containerd.io/gc.ref.content.l.0': sha256(layer) };
  await content.write('one', blobOf(document, labels), () => assert.fail('it is there'));
  assert.equal((await content.labelsOf(sha256(document)))['containerd.io/gc.ref.content.l.0'], sha256(layer));
  const sizes = (): Promise<(number | undefined)[]> =>
    Promise.all([layer, document].map((bytes) => content.sizeOf(sha256(bytes))));
  const letGo = async (lease: string, bytes: Buffer): Promise<void> => {
    await content.letGo(lease, [sha256(bytes)]);
    await content.letGo(lease, [sha256(bytes)]);
    await content.collect();
  };
  await letGo('one', layer);
  assert.deepEqual(await sizes(), [1000, 500]);
  await letGo('other', layer);
  assert.deepEqual(await sizes(), [1000, 500]);
  await letGo('one', document);
  assert.deepEqual(await sizes(), [undefined, undefined]);
  assert.deepEqual(await content.labelsOf(sha256(document)), {});
});

/** Where containerd has the file of a blob. */
const placeOf = (digest: NewBlob['digest']): string =>
  join(harness.dir, 'data/supervisor/io.containerd.content.v1.content/blobs/sha256', digest.slice(7));

test('a file that is offered becomes the blob, and is not sent', async () => {
  const bytes = randomBytes(MEGABYTE + 3);
  const blob = blobOf(bytes, { of: 'a file' });
  const path = join(harness.dir, 'offered');
  await writeFile(path, bytes);
  const [place, { from, asked }] = [placeOf(blob.digest), source(bytes)];
  // A power cut may have left anything of the same size there, which nobody has told containerd of.
  await content.offer(blob.digest, path);
  await rm(place);
  await writeFile(place, randomBytes(bytes.length));
  await content.offer(blob.digest, path);
  await content.offer(blob.digest, path);
  await content.write('one', blob, from);
  assert.deepEqual(asked, [bytes.length]);
  const [file, kept] = await Promise.all([path, place].map((one) => stat(one)));
  assert.equal(kept?.ino, file?.ino);
  assert.equal(kept?.nlink, 2);
  assert.equal((kept?.mode ?? 0) & 0o777, 0o444);
  assert.deepEqual(await bytesOf(blob.digest), bytes);
  assert.equal((await content.labelsOf(blob.digest))['of'], 'a file');
  assert.ok((await content.held('one')).includes(blob.digest));
  await content.letGo('one', [blob.digest]);
  await content.collect();
  assert.equal(await content.sizeOf(blob.digest), undefined);
  await assert.rejects(stat(place), { code: 'ENOENT' });
  assert.deepEqual(await readFile(path), bytes);
});

test('what writes have left that broke off goes when it is let go, and nothing that is being written', async () => {
  const [offered, sent, slow] = [1, 2, 3].map(() => randomBytes(2 * MEGABYTE)) as [Buffer, Buffer, Buffer];
  const path = join(harness.dir, 'left');
  await writeFile(path, offered);
  await content.offer(sha256(offered), path);
  const broken = (): never => {
    throw new Error('broken off');
  };
  await assert.rejects(content.write('other', blobOf(offered), broken), { message: 'broken off' });
  await assert.rejects(content.write('other', blobOf(sent), source(sent, MEGABYTE).from), { message: 'broken off' });
  await content.write('other', blobOf(slow), async function* () {
    yield slow.subarray(0, MEGABYTE);
    assert.equal(await content.letGoUnfinished('other'), false);
    yield slow.subarray(MEGABYTE);
  });
  await content.collect();
  assert.equal((await stat(placeOf(sha256(offered)))).size, offered.length);
  assert.deepEqual([await content.letGoUnfinished('other'), await content.letGoUnfinished('other')], [true, false]);
  await content.collect();
  await assert.rejects(stat(placeOf(sha256(offered))), { code: 'ENOENT' });
  assert.deepEqual(await bytesOf(sha256(slow)), slow);
  const again = source(sent);
  await content.write('other', blobOf(sent), again.from);
  assert.deepEqual(again.asked, [0]);
});

test('what was offered in vain is sent', async () => {
  const bytes = randomBytes(1000);
  const [blob, path] = [blobOf(bytes), join(harness.dir, 'collected')];
  await content.offer(blob.digest, join(harness.dir, 'nothing'));
  await writeFile(path, bytes);
  await content.offer(blob.digest, path);
  await rm(placeOf(blob.digest));
  const { from, asked } = source(bytes);
  await content.write('one', blob, from);
  assert.deepEqual(asked, [0]);
  assert.deepEqual(await bytesOf(blob.digest), bytes);
});
