import assert from 'node:assert/strict';
import { randomBytes } from 'node:crypto';
import { test } from 'node:test';
import { gunzipSync, gzipSync } from 'node:zlib';
import { canDeflate } from '../sys/ffi/deflater.js';
import { deflaterFor, isalDeflater, PART_BYTES as PART, type PartDeflater, zlibDeflater } from './deflate-part.js';
import { gzipInParts } from './gzip-parts.js';

const WAYS: readonly { readonly name: string; readonly deflater: () => PartDeflater }[] = [
  { name: 'zlib', deflater: () => zlibDeflater(4) },
  ...(canDeflate() ? [{ name: 'ISA-L', deflater: isalDeflater }] : []),
];

async function compressed(chunks: Iterable<Buffer>, deflate = zlibDeflater(4)): Promise<Buffer> {
  const pieces: Buffer[] = [];
  for await (const piece of gzipInParts(chunks, deflate)) pieces.push(piece);
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

for (const { name, deflater } of WAYS) {
  test(`${name}: what is compressed in parts is one gzip member with the same bytes`, async () => {
    for (const length of [0, 1, PART - 1, PART, PART + 1, 5 * PART + 12_345]) {
      const bytes = sample(length);
      assert.ok(gunzipSync(await compressed([bytes], deflater())).equals(bytes), `${length} bytes`);
    }
  });

  test(`${name}: the result does not depend on the pieces of the bytes, nor on what else is compressed`, async () => {
    const bytes = sample(4 * PART + 999);
    const used = deflater();
    await compressed([randomBytes(2 * PART), bytes.subarray(777)], used);
    const [whole, ...others] = await Promise.all([
      compressed([bytes], deflater()),
      compressed(cut(bytes, 1000), deflater()),
      compressed(cut(bytes, 262_144), deflater()),
      compressed(cut(bytes, PART + 1), deflater()),
      compressed([bytes], used),
    ]);
    for (const other of others) assert.ok(other.equals(whole));
  });

  test(`${name}: a chunk may be used again once the next one is asked for`, async () => {
    const bytes = sample(3 * PART);
    function* inOneBuffer(): Generator<Buffer> {
      const shared = Buffer.alloc(100_000);
      for (const piece of cut(bytes, shared.length)) yield shared.subarray(0, piece.copy(shared));
    }
    assert.ok(gunzipSync(await compressed(inOneBuffer(), deflater())).equals(bytes));
  });

  test(`${name}: a part knows what came before it`, async () => {
    // Nothing in it can be made shorter but by pointing to the block before.
    const block = randomBytes(30_000);
    const bytes = Buffer.concat(Array.from({ length: 100 }, () => block));
    const { length } = await compressed([bytes], deflater());
    assert.ok(length < gzipSync(bytes, { level: 4 }).length * 1.1, `${length} bytes`);
  });

  test(`${name}: what is compressed already is not compressed again, and what lies beside it is`, async () => {
    const [noise, words] = [randomBytes(2 * PART), sample(2 * PART)];
    const bytes = Buffer.concat([noise, words, noise]);
    const result = await compressed([bytes], deflater());
    assert.ok(gunzipSync(result).equals(bytes));
    // The parts of noise are in it as they are: a stored block has at most 65,535 bytes, so the start is looked for.
    for (const at of [1000, PART + 1000]) assert.ok(result.includes(noise.subarray(at, at + 10_000)), `at ${at}`);
    assert.ok(result.length < 4 * PART + gzipSync(words, { level: 4 }).length * 1.01, `${result.length} bytes`);
  });
}

test('a level that ISA-L reaches is its own where the machine has it, any other is that of zlib', async () => {
  const bytes = sample(PART);
  const none = await compressed([bytes], deflaterFor(0));
  assert.ok(none.length > PART && gunzipSync(none).equals(bytes), `${none.length} bytes`);
  for (const level of [undefined, 1, 2, 3, 4, 9]) {
    const isIsal = canDeflate() && (level ?? 1) < 3;
    const expected = await compressed([bytes], isIsal ? isalDeflater() : zlibDeflater(level ?? 4));
    assert.ok((await compressed([bytes], deflaterFor(level))).equals(expected), `level ${level}`);
  }
});

test('who stops reading leaves nothing that goes on', async () => {
  let taken = 0;
  function* endless(): Generator<Buffer> {
    for (;;) {
      taken += 1;
      yield Buffer.alloc(PART);
    }
  }
  for await (const piece of gzipInParts(endless(), zlibDeflater(4))) if (piece.length > 10) break;
  assert.ok(taken < 10, `${taken} parts were read for one`);
  // Others are not held back by parts that nobody waits for.
  assert.equal(gunzipSync(await compressed([Buffer.from('next')])).toString(), 'next');
});

test('however fast parts are deflated, few of them wait for a slow reader', async () => {
  let taken = 0;
  function* many(): Generator<Buffer> {
    for (; taken < 60; taken++) yield Buffer.alloc(PART);
  }
  let given = 0;
  const fast: PartDeflater = { atOnce: 4, deflate: (part) => Promise.resolve(part.subarray(0, 100)) };
  for await (const piece of gzipInParts(many(), fast)) {
    if (piece.length === 100) given += 1;
    assert.ok(taken - given < 10, `${taken} parts were read for ${given}`);
  }
  assert.equal(given, 60);
});

test('a source that fails ends the stream with its error', async () => {
  function* failing(): Generator<Buffer> {
    yield sample(3 * PART);
    throw new Error('no disk');
  }
  await assert.rejects(compressed(failing()), /no disk/);
});
