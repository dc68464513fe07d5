import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { createHash, randomBytes } from 'node:crypto';
import { test } from 'node:test';
import { gzipSync } from 'node:zlib';
import { isEngineError } from '../errors/engine-error.js';
import { inflaters } from '../sys/ffi/inflaters.js';
import { sha256 } from '../sys/ffi/sha256.js';
import { createDecompressor, decompressed, type DecompressorOptions } from './decompress.js';

/** Each way to inflate gzip, and the only one for what is something else. */
const waysOf = (form: string): readonly DecompressorOptions[] =>
  form.includes('gzip') ? [...inflaters(), 'stream' as const].map((gzip) => ({ gzip })) : [{}];

// Half of it compresses, half does not.
const plain = Buffer.concat(
  Array.from({ length: 40 }, (_, at) =>
    Buffer.concat([createHash('sha512').update(String(at)).digest(), Buffer.alloc(1000, 'what is in a layer ')]),
  ),
);
const compress = (program: string, ...args: string[]): Buffer =>
  execFileSync(program, args, { input: plain, maxBuffer: 1 << 26 });
const zstd = (input: Buffer): Buffer => execFileSync('zstd', ['-qc'], { input });
/** A frame of five bytes that decoders of zstd pass over. */
const SKIPPABLE = Buffer.from('502a4d18050000000102030405', 'hex');
const forms: Readonly<Record<string, Buffer>> = {
  plain,
  gzip: gzipSync(plain),
  'two gzip members': Buffer.concat([gzipSync(plain.subarray(0, 5000)), gzipSync(plain.subarray(5000))]),
  zstd: compress('zstd', '-qc'),
  'two zstd frames': Buffer.concat([zstd(plain.subarray(0, 5000)), zstd(plain.subarray(5000))]),
  'zstd with skippable frames': Buffer.concat([SKIPPABLE, zstd(plain), SKIPPABLE]),
  xz: compress('xz', '-c'),
  bzip2: compress('bzip2', '-c'),
};

/** Lends each portion: its memory has other bytes afterwards. */
async function* portions(bytes: Buffer, size: number): AsyncGenerator<Buffer> {
  const memory = Buffer.alloc(Math.min(size, bytes.length));
  for (let at = 0; at < bytes.length; at += size) {
    const length = bytes.copy(memory, 0, at, at + size);
    yield memory.subarray(0, length);
    memory.fill(0xee);
  }
}

async function pulled(bytes: Buffer, size: number, options: DecompressorOptions = {}): Promise<Buffer> {
  const chunks: Buffer[] = [];
  for await (const chunk of decompressed(portions(bytes, size), options)) chunks.push(Buffer.from(chunk));
  return Buffer.concat(chunks);
}

async function pushed(bytes: Buffer, size: number, options: DecompressorOptions = {}): Promise<Buffer> {
  const chunks: Buffer[] = [];
  const decompressor = createDecompressor((chunk) => chunks.push(Buffer.from(chunk)), options);
  try {
    for await (const portion of portions(bytes, size)) await decompressor.write(portion);
    await decompressor.end();
  } finally {
    decompressor.destroy();
  }
  return Buffer.concat(chunks);
}

test('every form, pulled and pushed, in portions of any size', async () => {
  for (const [form, bytes] of Object.entries(forms)) {
    for (const size of [3, 1000, bytes.length]) {
      if (size === 3 && bytes.length > 20_000) continue;
      for (const [at, ways] of waysOf(form).entries()) {
        assert.ok((await pulled(bytes, size, ways)).equals(plain), `${form} pulled by ${size}, way ${at}`);
        assert.ok((await pushed(bytes, size, ways)).equals(plain), `${form} pushed by ${size}, way ${at}`);
      }
    }
  }
});

test('input that fills its buffers many times', async () => {
  const large = randomBytes(2 << 20);
  const forms = {
    plain: large,
    gzip: gzipSync(large, { level: 1 }),
    xz: execFileSync('xz', ['-0c'], { input: large, maxBuffer: 1 << 26 }),
  };
  for (const [form, bytes] of Object.entries(forms)) {
    for (const options of waysOf(form)) {
      const hash = sha256();
      assert.ok((await pushed(bytes, 700_000, { ...options, hash })).equals(large), form);
      assert.equal(hash.digest(), createHash('sha256').update(large).digest('hex'), form);
      assert.ok((await pulled(bytes, 70_000, options)).equals(large), form);
    }
  }
});

test('the last piece is extracted, however soon the end follows', async () => {
  for (const form of ['gzip', 'xz', 'bzip2']) {
    for (const length of [1, 250_000]) {
      const content = Buffer.alloc(length, plain);
      const bytes = execFileSync(form, ['-c'], { input: content });
      // Zeros behind a gzip stream are padding, which ends it at once.
      for (const whole of form === 'gzip' ? [bytes, Buffer.concat([bytes, Buffer.alloc(8)])] : [bytes]) {
        for (const options of waysOf(form)) {
          const hash = sha256();
          assert.ok((await pushed(whole, whole.length, { ...options, hash })).equals(content), `${length} of ${form}`);
          assert.equal(hash.digest(), createHash('sha256').update(content).digest('hex'), `${length} of ${form}`);
          assert.ok((await pulled(whole, whole.length, options)).equals(content), `${length} bytes of ${form}`);
        }
      }
    }
  }
});

test('what is cut off or damaged is data loss', async () => {
  for (const [form, bytes] of Object.entries(forms)) {
    // The decoder of zstd leaves sums to the digests, which every layer has.
    if (form === 'plain' || form.includes('zstd')) continue;
    const cut = bytes.subarray(0, Math.floor(bytes.length * 0.6));
    const damaged = Buffer.from(bytes);
    damaged.fill(0xa5, Math.floor(bytes.length / 2), Math.floor(bytes.length / 2) + 40);
    for (const bad of [cut, damaged]) {
      for (const read of [pulled, pushed]) {
        for (const options of waysOf(form))
          await assert.rejects(read(bad, 1000, options), (error) => isEngineError(error, 'data-loss'), form);
      }
    }
  }
});

test('the sum of a gzip stream is checked, unless a digest tells what is damaged', async () => {
  const bytes = gzipSync(plain);
  bytes.writeUInt32LE((bytes.readUInt32LE(bytes.length - 8) ^ 1) >>> 0, bytes.length - 8);
  for (const options of inflaters().map((gzip) => ({ gzip }))) {
    await assert.rejects(pushed(bytes, 1000, options), (error) => isEngineError(error, 'data-loss'));
    await assert.rejects(pulled(bytes, 1000, options), (error) => isEngineError(error, 'data-loss'));
    assert.ok((await pushed(bytes, 1000, { ...options, hasDigest: true })).equals(plain));
  }
});

test('a little gzip that is much is lent a piece at a time, and given up when nobody wants more', async () => {
  const bytes = gzipSync(Buffer.alloc(8 << 20));
  for (const options of inflaters().map((gzip) => ({ gzip }))) {
    let count = 0;
    let longest = 0;
    for await (const piece of decompressed(portions(bytes, bytes.length), options)) {
      count += piece.length;
      longest = Math.max(longest, piece.length);
    }
    assert.deepEqual([count, longest], [8 << 20, 256 << 10]);
    for await (const piece of decompressed(portions(bytes, bytes.length), options)) {
      if (piece.length > 0) break;
    }
    count = 0;
    const stop = new Error('enough');
    const decompressor = createDecompressor((piece) => {
      count += piece.length;
      if (count > 4 << 20) throw stop;
    }, options);
    await assert.rejects(async () => {
      await decompressor.write(bytes);
      await decompressor.end();
    }, isEngineError);
    decompressor.destroy();
    assert.ok(count < 5 << 20);
  }
});
