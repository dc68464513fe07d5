import assert from 'node:assert/strict';
import { test } from 'node:test';
import { setImmediate as turn } from 'node:timers/promises';
import { freeBuffer } from './free-buffer.js';

const BYTES = 1 << 20;

test('memory of a buffer is free at once, without a collection', async () => {
  assert.ok(freeBuffer(Buffer.allocUnsafeSlow(BYTES)));
  // The port that is used for it is not closed before.
  await turn();
  await turn();
  const before = process.memoryUsage().arrayBuffers;
  // So many would not be kept by a collector either, but it would have to run for that.
  for (let count = 0; count < 1000; count++) {
    const buffer = Buffer.allocUnsafeSlow(BYTES);
    assert.ok(freeBuffer(buffer));
    assert.equal(buffer.length, 0);
    const { arrayBuffers } = process.memoryUsage();
    assert.ok(arrayBuffers < before + BYTES, `${arrayBuffers - before} bytes more after ${count + 1} buffers`);
  }
});

test('parts of memory stay as they are', () => {
  const whole = Buffer.alloc(BYTES, 'a');
  assert.ok(!freeBuffer(whole.subarray(1)));
  assert.ok(!freeBuffer(Buffer.from('from the pool')));
  assert.ok(!freeBuffer(new Uint8Array(new SharedArrayBuffer(8))));
  assert.ok(!freeBuffer(Buffer.alloc(0)));
  assert.equal(whole.toString(), 'a'.repeat(BYTES));
});
