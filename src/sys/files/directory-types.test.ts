import assert from 'node:assert/strict';
import { execFileSync, spawnSync } from 'node:child_process';
import { mkdirSync, mkdtempSync, rmSync, truncateSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test } from 'node:test';
import { tellsTypes } from './directory-types.js';

const XFS_BYTES = 400 << 20;

test('types of files in directories, where the file system has them and where it has not', (t) => {
  const dir = mkdtempSync(join(tmpdir(), 'directory-types-'));
  const mounted = join(dir, 'mounted');
  t.after(() => {
    spawnSync('umount', ['--lazy', mounted]);
    rmSync(dir, { recursive: true });
  });
  mkdirSync(mounted);
  assert.equal(tellsTypes(dir), true);
  const image = join(dir, 'xfs');
  writeFileSync(image, '');
  truncateSync(image, XFS_BYTES);
  try {
    execFileSync('mkfs.xfs', ['-q', '-m', 'crc=0', '-n', 'ftype=0', image], { stdio: 'pipe' });
    execFileSync('mount', ['-o', 'loop', image, mounted], { stdio: 'pipe' });
  } catch (error) {
    t.skip(`no such file system here: ${String(error)}`);
    return;
  }
  writeFileSync(join(mounted, 'file'), '');
  assert.equal(tellsTypes(mounted), false);
});
