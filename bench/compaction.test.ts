import assert from 'node:assert/strict';
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test } from 'node:test';
import { withoutCompaction } from './compaction.js';

test('the kernel puts no free memory together until the bench ends, and does as before then', (t) => {
  const dir = mkdtempSync(join(tmpdir(), 'compaction-'));
  t.after(() => rmSync(dir, { recursive: true }));
  const setting = join(dir, 'compaction_proactiveness');
  withoutCompaction(setting)();
  writeFileSync(setting, '20\n');
  const leave = withoutCompaction(setting);
  assert.equal(readFileSync(setting, 'latin1'), '0\n');
  leave();
  assert.equal(readFileSync(setting, 'latin1'), '20\n');
});
