import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { lstatSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test } from 'node:test';
import { isSameContent } from './same-content.js';

test('files are compared; what a container puts in the place of one is not opened', (t) => {
  const root = mkdtempSync(join(tmpdir(), 'engined-same-'));
  t.after(() => rmSync(root, { recursive: true }));
  const [a, b] = [join(root, 'a'), join(root, 'b')];
  for (const path of [a, b]) writeFileSync(path, 'x'.repeat(300_000));
  const stat = lstatSync(a, { bigint: true });
  assert.equal(isSameContent(a, b, stat), true);
  writeFileSync(b, `${'x'.repeat(299_999)}y`);
  assert.equal(isSameContent(a, b, stat), false);
  // There is no driver for the device: the kernel says so to those who open it.
  for (const what of [['p'], ['c', '4095', '1']]) {
    rmSync(a);
    execFileSync('mknod', [a, ...what]);
    assert.equal(isSameContent(a, b, stat), false);
  }
});
