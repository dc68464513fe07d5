import assert from 'node:assert/strict';
import { mkdirSync, mkdtempSync, readdirSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test } from 'node:test';
import { makeGroup } from './processor-time.js';

test('an empty group that a killed bench left is replaced, one with something in it is not', (t) => {
  const dir = mkdtempSync(join(tmpdir(), 'groups-'));
  t.after(() => rmSync(dir, { recursive: true }));
  const group = join(dir, 'group');
  makeGroup(group);
  makeGroup(group);
  assert.deepEqual(readdirSync(dir), ['group']);
  mkdirSync(join(group, 'below'));
  assert.throws(() => makeGroup(group), { code: 'ENOTEMPTY' });
  writeFileSync(join(dir, 'file'), '');
  assert.throws(() => makeGroup(join(dir, 'file', 'group')), { code: 'ENOTDIR' });
});
