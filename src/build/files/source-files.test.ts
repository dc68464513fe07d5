import assert from 'node:assert/strict';
import { closeSync, mkdirSync, mkdtempSync, openSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test } from 'node:test';
import { findSources } from './source-files.js';

test('a pattern with many ways to a directory looks into it once for each of its pieces', (t) => {
  const root = mkdtempSync(join(tmpdir(), 'source-files-'));
  t.after(() => rmSync(root, { recursive: true }));
  const deep = 'd/'.repeat(40);
  mkdirSync(join(root, deep), { recursive: true });
  writeFileSync(join(root, deep, 'x'), '');
  const fd = openSync(root, 'r');
  // There are some hundred million ways.
  const found = findSources(fd, `${'**/'.repeat(8)}x`, () => false, true);
  assert.deepEqual(
    found.map(({ below }) => below),
    [`${deep}x`],
  );
  for (const source of found) source.close();
  closeSync(fd);
});
