import assert from 'node:assert/strict';
import { createHash } from 'node:crypto';
import { test } from 'node:test';
import { constants, crc32, deflateRawSync, gzipSync } from 'node:zlib';
import type { Inflater, MakeInflater } from './inflater.js';
import { canIsal, IsalInflater } from './isal-inflater.js';
import { canZlib, ZlibInflater } from './zlib-inflater.js';

const makers: Readonly<Record<string, MakeInflater>> = {
  isal: (hasDigest) => new IsalInflater(hasDigest),
  zlib: (hasDigest) => new ZlibInflater(hasDigest),
};

interface Sizes {
  readonly inBytes: number;
  readonly outBytes: number;
  readonly hasDigest?: boolean;
}

/** Inflates members in pieces of these sizes, each in memory of its own size. Returns undefined for what is damaged. */
async function inflated(
  make: MakeInflater,
  bytes: Buffer,
  { inBytes, outBytes, hasDigest = false }: Sizes,
): Promise<Buffer | undefined> {
  const inflater = make(hasDigest);
  try {
    return await drive(inflater, bytes, inBytes, outBytes);
  } catch {
    return undefined;
  } finally {
    inflater.free();
    inflater.free();
  }
}

async function drive(inflater: Inflater, bytes: Buffer, inBytes: number, outBytes: number) {
  const pieces: Buffer[] = [];
  let isEnd = false;
  let isFull = false;
  for (let at = 0; at < bytes.length || isFull;) {
    if (isEnd) inflater.reset();
    // The end of its memory is that of the buffer.
    const input = Buffer.from(Uint8Array.prototype.slice.call(bytes, at, at + inBytes));
    const output = Buffer.alloc(outBytes, 0xee);
    const step = await inflater.step(input, output);
    assert.ok(step.readBytes > 0 || step.writtenBytes > 0 || isFull, 'a step does something');
    at += step.readBytes;
    pieces.push(output.subarray(0, step.writtenBytes));
    isEnd = step.isEnd;
    isFull = step.writtenBytes === outBytes && !isEnd;
  }
  return isEnd ? Buffer.concat(pieces) : undefined;
}

/** Text, noise and repetition from as far back as there may be. */
const noise = Buffer.concat(Array.from({ length: 3 }, (_, at) => createHash('sha512').update(`${at}`).digest()));
const plain = Buffer.concat([noise, Buffer.alloc(32_768 - noise.length, 'layer '), noise, Buffer.alloc(3000), noise]);

/** A member whose header has every field. */
function dressed(sum: (header: Buffer) => number): Buffer {
  const text = `${'n'.repeat(30)}\0${'c'.repeat(20)}\0`;
  const header = Buffer.concat([
    Buffer.from('1f8b081f000000000003', 'hex'),
    Buffer.from('\x09\0e\0tra\0and', 'latin1'),
  ]);
  const whole = Buffer.concat([header, Buffer.from(text, 'latin1')]);
  const tail = Buffer.alloc(8);
  tail.writeUInt32LE(crc32(plain), 0);
  tail.writeUInt32LE(plain.length, 4);
  const headerSum = Buffer.alloc(2);
  headerSum.writeUInt16LE(sum(whole) & 0xffff);
  return Buffer.concat([whole, headerSum, deflateRawSync(plain), tail]);
}

const gzip = gzipSync(plain);
const twice = Buffer.concat([plain, plain]);
const changed = (at: number, bits: number): Buffer => {
  const bytes = Buffer.from(gzip);
  const index = at < 0 ? bytes.length + at : at;
  bytes.writeUInt8(bytes.readUInt8(index) ^ bits, index);
  return bytes;
};

/** Results are the bytes, or undefined for what is damaged; two of them are without and with a digest. */
const CASES: ReadonlyArray<readonly [name: string, bytes: Buffer, ...results: Array<Buffer | undefined>]> = [
  ['a member', gzip, plain],
  ['stored', gzipSync(noise, { level: 0 }), noise],
  ['fixed codes', gzipSync(plain, { strategy: constants.Z_FIXED }), plain],
  ['nothing', gzipSync(Buffer.alloc(0)), Buffer.alloc(0)],
  ['two members', Buffer.concat([gzip, gzip]), twice],
  ['an empty member before another', Buffer.concat([gzipSync(''), gzip]), plain],
  ['every field in the header', dressed(crc32), plain],
  ['every field, twice', Buffer.concat([dressed(crc32), dressed(crc32)]), twice],
  ['a wrong sum of the header', dressed((header) => crc32(header) ^ 1), undefined, plain],
  ['a wrong sum', changed(-8, 1), undefined, plain],
  ['a wrong length', changed(-1, 1), undefined, plain],
  ['no deflate', changed(2, 1), undefined],
  ['a flag that is not defined', changed(3, 0x20), undefined],
  ['another magic number', changed(1, 1), undefined],
  ['a wrong kind of block', changed(10, 6), undefined],
  ['another kind of file behind it', Buffer.concat([gzip, Buffer.from('ab')]), undefined],
];

const SIZES: readonly Sizes[] = [
  { inBytes: 1, outBytes: 5000 },
  { inBytes: 7, outBytes: 1000 },
  { inBytes: 1 << 18, outBytes: 997 },
  { inBytes: 1 << 18, outBytes: 32_768 },
  { inBytes: 1 << 18, outBytes: plain.length },
  { inBytes: 1 << 18, outBytes: 1 << 18 },
];

test('both libraries are there', () => {
  assert.ok(canIsal());
  assert.ok(canZlib());
});

for (const [library, make] of Object.entries(makers)) {
  test(`${library}: members as they are and as they should not be, in pieces of every size`, async () => {
    for (const [name, bytes, ...results] of CASES) {
      for (const size of SIZES) {
        for (const hasDigest of [false, true]) {
          const wanted = results.length > 1 && hasDigest ? results[1] : results[0];
          const found = await inflated(make, bytes, { ...size, hasDigest });
          const where = `${name}, ${size.inBytes} into ${size.outBytes}, ${hasDigest ? 'a digest' : 'no digest'}`;
          assert.equal(found?.length, wanted?.length, where);
          assert.ok(found === wanted || (found && wanted?.equals(found)), where);
        }
      }
    }
  });

  test(`${library}: what is cut off anywhere has no end`, async () => {
    const bytes = gzipSync(noise.subarray(0, 100));
    for (let length = 1; length < bytes.length; length++) {
      for (const hasDigest of [false, true]) {
        const sizes = { inBytes: 1 << 18, outBytes: 1000, hasDigest };
        assert.equal(await inflated(make, bytes.subarray(0, length), sizes), undefined, `${length} bytes`);
      }
    }
  });

  test(`${library}: an inflater that failed leaves nothing to the next one`, async () => {
    for (let at = 12; at < 300; at += 7) {
      await inflated(make, changed(at, 0xff), { inBytes: 50, outBytes: 500, hasDigest: true });
      assert.ok((await inflated(make, gzip, { inBytes: 1 << 18, outBytes: 1 << 18 }))?.equals(plain), `byte ${at}`);
    }
  });
}

test('both libraries say the same of damaged bytes', async () => {
  let seed = 7;
  const random = (below: number): number => {
    seed = (Math.imul(seed, 1_664_525) + 1_013_904_223) >>> 0;
    return Math.floor((seed / 2 ** 32) * below);
  };
  const sources = [1, 6, 9].map((level) => gzipSync(plain.subarray(0, 4000), { level, memLevel: level }));
  for (let at = 0; at < 300; at++) {
    const bytes = Buffer.from(sources[random(3)] ?? gzip);
    for (let times = random(3); times >= 0; times--) bytes.writeUInt8(random(256), random(bytes.length));
    const cut = random(4) === 0 ? bytes.subarray(0, random(bytes.length)) : bytes;
    const sizes = { inBytes: 1 + random(2000), outBytes: 100 + random(5000) };
    const [one, other] = await Promise.all(Object.values(makers).map((make) => inflated(make, cut, sizes)));
    assert.deepEqual(one, other, `change ${at}`);
  }
});
