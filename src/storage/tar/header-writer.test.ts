import assert from 'node:assert/strict';
import { test } from 'node:test';
import { BLOCK_SIZE } from './header.js';
import { encodeHeader, type EntryHeader } from './header-writer.js';

const ENTRY: EntryHeader = {
  type: '0',
  name: 'directory/file',
  mode: 0o4755,
  uid: 1000,
  gid: 0o7777777,
  sizeBytes: 123_456,
  mtimeSeconds: 1_600_000_000,
};

/** The checksum as POSIX tells it: all bytes of the block, its own as spaces. */
function sumOf(block: Buffer): string {
  const whole = Buffer.from(block).fill(0x20, 148, 156);
  const sum = whole.reduce((total, byte) => total + byte, 0);
  return `${sum.toString(8).padStart(6, '0')}\0 `;
}

test('a header has the sum of all its bytes', () => {
  const entries: EntryHeader[] = [
    ENTRY,
    { ...ENTRY, name: 'é\xff'.padEnd(120, 'n') },
    { ...ENTRY, type: '2', linkName: 'l'.repeat(100) },
    { ...ENTRY, type: '3', deviceMajor: 8, deviceMinor: 259, sizeBytes: 0 },
    { ...ENTRY, uid: 3_000_000_000, sizeBytes: 2 ** 40, mtimeSeconds: -1 },
  ];
  for (const entry of entries) {
    const block = encodeHeader(entry).subarray(-BLOCK_SIZE);
    assert.equal(block.toString('latin1', 148, 156), sumOf(block), JSON.stringify(entry));
  }
});

test('a header is made of these bytes', () => {
  const block = encodeHeader({ ...ENTRY, type: '2', linkName: 'to' });
  const text = (from: number, to: number): string => block.toString('latin1', from, to);
  assert.equal(text(0, 15), 'directory/file\0');
  assert.equal(text(100, 148), '0004755\x000001750\x007777777\x0000000361100\x0013727410000\0');
  assert.equal(text(156, 160), '2to\0');
  assert.equal(text(257, 265), 'ustar\x0000');
  assert.equal(text(329, 345), '0000000\x000000000\0');
  assert.ok(block.subarray(345).every((byte) => byte === 0));
});

test('nothing of a header stays in memory that is used for the next one', () => {
  const memory = Buffer.alloc(BLOCK_SIZE);
  encodeHeader({ ...ENTRY, name: 'n'.repeat(100), linkName: 'l'.repeat(100), deviceMajor: 1 }, memory);
  assert.deepEqual(encodeHeader(ENTRY, memory), encodeHeader(ENTRY));
});
