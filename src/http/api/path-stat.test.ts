import assert from 'node:assert/strict';
import { test } from 'node:test';
import { goFileMode, pathStatHeader } from './path-stat.js';

test('modes are those of Go', () => {
  assert.equal(goFileMode(0o040755), 2147484141);
  assert.equal(goFileMode(0o100644), 0o644);
  assert.equal(goFileMode(0o120777), 2 ** 27 + 0o777);
  assert.equal(goFileMode(0o020666), 2 ** 26 + 2 ** 21 + 0o666);
  assert.equal(goFileMode(0o060660), 2 ** 26 + 0o660);
  assert.equal(goFileMode(0o010600), 2 ** 25 + 0o600);
  assert.equal(goFileMode(0o140700), 2 ** 24 + 0o700);
  assert.equal(goFileMode(0o107777), 2 ** 23 + 2 ** 22 + 2 ** 20 + 0o777);
});

test('the header is padded base64 of JSON, times are UTC also before the epoch', () => {
  const header =
    pathStatHeader({ name: 'ü', sizeBytes: 3, mode: 0o100644, mtimeNs: -500_000_000n, linkTarget: '' })[
      'X-Docker-Container-Path-Stat'
    ] ?? '';
  assert.equal(header.length % 4, 0);
  assert.equal(
    Buffer.from(header, 'base64').toString(),
    '{"name":"ü","size":3,"mode":420,"mtime":"1969-12-31T23:59:59.5Z","linkTarget":""}',
  );
});
