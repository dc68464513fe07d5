import assert from 'node:assert/strict';
import { randomBytes } from 'node:crypto';
import { test } from 'node:test';
import { gunzipSync, gzipSync } from 'node:zlib';
import { gzipInParts } from './gzip-parts.js';

const PART = 512 << 10;

async function compressed(chunks: Iterable<Buffer>): Promise<Buffer> {
  const pieces: Buffer[] = [];
  for await (const piece of gzipInParts(chunks, 4)) pieces.push(piece);
  return Buffer.concat(pieces);
}

function* cut(bytes: Buffer, size: number): Generator<Buffer> {
  for (let at = 0; at < bytes.length; at += size) yield bytes.subarray(at, at + size);
}

/** Half of it is worth compressing. */
function sample(length: number): Buffer {
  const bytes = randomBytes(length);
  for (let at = 0; at < length; at += 2) bytes[at] = 0x41;
  return bytes;
}

test('what is compressed in parts is one gzip member with the same bytes', async () => {
  for (const length of [0, 1, PART - 1, PART, PART + 1, 5 * PART + 12_345]) {
    const bytes = sample(length);
    assert.ok(gunzipSync(await compressed([bytes])).equals(bytes), `${length} bytes`);
  }
});

test('the result does not depend on the pieces in which the bytes come, nor on who else compresses', async () => {
  const bytes = sample(4 * PART + 999);
  const [whole, ...others] = await Promise.all([
    compressed([bytes]),
    compressed(cut(bytes, 1000)),
    compressed(cut(bytes, 262_144)),
    compressed(cut(bytes, PART + 1)),
  ]);
  for (const other of others) assert.ok(other.equals(whole));
});

test('a chunk may be used again once the next one is asked for', async () => {
  const bytes = sample(3 * PART);
  function* inOneBuffer(): Generator<Buffer> {
    const shared = Buffer.alloc(100_000);
    for (const piece of cut(bytes, shared.length)) yield shared.subarray(0, piece.copy(shared));
  }
  assert.ok(gunzipSync(await compressed(inOneBuffer())).equals(bytes));
});

test('a part knows what came before it', async () => {
  // Nothing in it can be made shorter but by pointing to the block before.
  const block = randomBytes(30_000);
  const bytes = Buffer.concat(Array.from({ length: 100 }, () => block));
  const { length } = await compressed([bytes]);
  assert.ok(length < gzipSync(bytes, { level: 4 }).length * 1.1, `${length} bytes`);
});

test('what is compressed already is not compressed again, and what lies beside it is', async () => {
  const [noise, words] = [randomBytes(2 * PART), sample(2 * PART)];
  const bytes = Buffer.concat([noise, words, noise]);
  const result = await compressed([bytes]);
  assert.ok(gunzipSync(result).equals(bytes));
  // The parts of noise are in it as they are: a stored block is at most 65,535 bytes long, so the start is looked for.
  for (const at of [1000, PART + 1000]) assert.ok(result.includes(noise.subarray(at, at + 10_000)), `at ${at}`);
  assert.ok(result.length < 4 * PART + gzipSync(words, { level: 4 }).length * 1.01, `${result.length} bytes`);
});

test('who stops reading leaves nothing that goes on', async () => {
  let taken = 0;
  function* endless(): Generator<Buffer> {
    for (;;) {
      taken += 1;
      yield Buffer.alloc(PART);
    }
  }
  for await (const piece of gzipInParts(endless(), 4)) if (piece.length > 10) break;
  assert.ok(taken < 10, `${taken} parts were read for one`);
  // Others are not held back by parts that nobody waits for.
  assert.equal(gunzipSync(await compressed([Buffer.from('next')])).toString(), 'next');
});

test('a source that fails ends the stream with its error', async () => {
  function* failing(): Generator<Buffer> {
    yield sample(3 * PART);
    throw new Error('no disk');
  }
  await assert.rejects(compressed(failing()), /no disk/);
});
