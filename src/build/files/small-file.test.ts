import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { mkdtempSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test } from 'node:test';
import { readSmallFile } from './small-file.js';

test('a file is read, also through a link; a device or a FIFO is not even opened', async (t) => {
  const root = mkdtempSync(join(tmpdir(), 'engined-small-'));
  t.after(() => rmSync(root, { recursive: true }));
  writeFileSync(join(root, 'file'), 'FROM scratch');
  symlinkSync('/file', join(root, 'link'));
  for (const name of ['file', 'link']) assert.equal(String(await readSmallFile(root, name, 100)), 'FROM scratch');
  assert.equal(await readSmallFile(root, 'missing', 100), undefined);
  await assert.rejects(readSmallFile(root, 'file', 3), /file is too large/);
  // There is no driver for the device: the kernel says so to those who open it.
  execFileSync('mknod', [join(root, 'device'), 'c', '4095', '1']);
  execFileSync('mknod', [join(root, 'fifo'), 'p']);
  for (const name of ['device', 'fifo']) await assert.rejects(readSmallFile(root, name, 100), /is not a file/);
});
