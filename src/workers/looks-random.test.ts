import assert from 'node:assert/strict';
import { randomBytes } from 'node:crypto';
import { test } from 'node:test';
import { gzipSync } from 'node:zlib';
import { looksRandom } from './looks-random.js';

test('random and compressed bytes look random, text does not', () => {
  const archive = gzipSync(randomBytes(200_000).toString('hex'));
  assert.equal(looksRandom(randomBytes(8192)), true);
  for (let at = 8192; at + 8192 < archive.length; at += 8192)
    assert.equal(looksRandom(archive.subarray(at, at + 8192)), true, `archive at ${at}`);
  assert.equal(looksRandom(Buffer.from(randomBytes(6144).toString('base64'))), false);
  assert.equal(looksRandom(Buffer.from(randomBytes(4096).toString('hex'))), false);
  assert.equal(looksRandom(Buffer.alloc(8192)), false);
});
