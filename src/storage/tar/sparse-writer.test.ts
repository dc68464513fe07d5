import assert from 'node:assert/strict';
import { randomBytes } from 'node:crypto';
import { mkdtempSync, openSync, readFileSync, rmSync, statSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, test } from 'node:test';
import { WriteBehind } from '../../sys/files/write-behind.js';
import { SparseWriter } from './sparse-writer.js';

const temp = mkdtempSync(join(tmpdir(), 'sparse-'));
after(() => rmSync(temp, { recursive: true }));

const KIB = 1024;

function write(content: Buffer, portions: readonly number[], sizeBytes = content.length): string {
  const path = join(temp, String(Math.random()));
  const writer = new SparseWriter(openSync(path, 'wx'), sizeBytes);
  let at = 0;
  for (let index = 0; at < content.length; index++) {
    const end = Math.min(content.length, at + (portions[index % portions.length] ?? 1));
    // In the middle of a larger chunk, as content comes between headers.
    writer.write(Buffer.concat([Buffer.from('head'), content.subarray(at, end), Buffer.from('tail')]), 4, 4 + end - at);
    at = end;
  }
  if (sizeBytes === content.length) writer.finish();
  writer.close();
  return path;
}

test('whatever the portions, the file is what was written', () => {
  const pattern = Buffer.alloc(700 * KIB);
  for (const [from, to] of [
    [0, 1],
    [64 * KIB, 64 * KIB + 3],
    [200 * KIB, 410 * KIB],
    [699 * KIB, 700 * KIB],
  ] as const)
    pattern.fill(7, from, to);
  for (const content of [
    pattern,
    Buffer.alloc(0),
    Buffer.alloc(1),
    Buffer.alloc(300 * KIB),
    Buffer.alloc(300 * KIB, 1),
    Buffer.concat([pattern, Buffer.alloc(500 * KIB)]),
  ]) {
    for (const portions of [[1_000_000], [64 * KIB], [100_001, 3], [4096, 65_536, 1]])
      assert.ok(readFileSync(write(content, portions)).equals(content));
  }
});

test('zeros take no room on the disk, data does', () => {
  const content = Buffer.concat([Buffer.alloc(8 * KIB * KIB), Buffer.alloc(64 * KIB, 5), Buffer.alloc(8 * KIB * KIB)]);
  const { size, blocks } = statSync(write(content, [300_000]));
  assert.equal(size, content.length);
  assert.ok(blocks * 512 >= 64 * KIB && blocks * 512 < 1024 * KIB, `${blocks} blocks`);
});

test('a large file has its bytes, and no more room than they take', () => {
  const data = Buffer.alloc(20 * KIB * KIB, 'data');
  for (const content of [data, Buffer.concat([data, Buffer.alloc(3 * KIB * KIB)])]) {
    const path = write(content, [256 * KIB]);
    assert.ok(readFileSync(path).equals(content));
    const { blocks } = statSync(path);
    assert.ok(blocks * 512 <= data.length + 64 * KIB, `${blocks} blocks`);
  }
});

test('a file whose rest never comes has no more room than what came', () => {
  const content = Buffer.alloc(3 * KIB * KIB, 'data');
  const path = write(content, [256 * KIB], 64 * KIB * KIB);
  assert.ok(readFileSync(path).equals(content));
  const { blocks } = statSync(path);
  assert.ok(blocks * 512 <= content.length + 64 * KIB, `${blocks} blocks`);
});

test('data between holes takes no more room than its bytes', () => {
  const piece = Buffer.concat([Buffer.alloc(512 * KIB, 'data'), Buffer.alloc(1536 * KIB)]);
  const content = Buffer.concat(Array.from({ length: 8 }, () => piece));
  const path = write(content, [64 * KIB]);
  assert.ok(readFileSync(path).equals(content));
  const { blocks } = statSync(path);
  assert.ok(blocks * 512 <= 8 * 512 * KIB + 64 * KIB, `${blocks} blocks`);
});

test('pieces that are lent are in the file, with holes between them and in them', () => {
  const data = (length: number): Buffer => Buffer.alloc(length, randomBytes(4096));
  // Data that ends far before the space that was asked for ahead, then a hole: again and again.
  const part = [data(1536 * KIB), Buffer.alloc(256 * KIB), data(300 * KIB), Buffer.alloc(64 * KIB), data(777)];
  const content = Buffer.concat(Array.from({ length: 40 }, () => part).flat());
  const path = join(temp, 'lent');
  const behind = new WriteBehind();
  const writer = new SparseWriter(openSync(path, 'wx'), content.length, false, behind);
  const memories = Array.from({ length: 3 }, () => Buffer.allocUnsafeSlow(576 * KIB));
  for (let at = 0, turn = 0; at < content.length; turn++) {
    const memory = memories[turn % memories.length];
    assert.ok(memory);
    behind.waitFor(memory.buffer);
    const length = content.copy(memory, 0, at);
    writer.write(memory, 0, length, true);
    at += length;
  }
  writer.finish();
  writer.close();
  assert.ok(readFileSync(path).equals(content));
  assert.ok(statSync(path).blocks * 512 <= 40 * 2050 * KIB);
});
