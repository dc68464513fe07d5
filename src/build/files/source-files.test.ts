import assert from 'node:assert/strict';
import { closeSync, mkdirSync, mkdtempSync, openSync, readdirSync, rmSync, writeFileSync } from 'node:fs';
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
  const below: string[] = [];
  for (const source of findSources(fd, `${'**/'.repeat(8)}x`, () => false, true)) {
    below.push(source.below);
    source.close();
  }
  assert.deepEqual(below, [`${deep}x`]);
  closeSync(fd);
});

test('however many files a pattern finds, one is open at a time', (t) => {
  const root = mkdtempSync(join(tmpdir(), 'source-files-'));
  t.after(() => rmSync(root, { recursive: true }));
  for (let at = 0; at < 100; at++) writeFileSync(join(root, `f${at}`), '');
  const fd = openSync(root, 'r');
  const open = (): number => readdirSync('/proc/self/fd').length;
  const before = open();
  let count = 0;
  for (const source of findSources(fd, 'f*', () => false)) {
    count++;
    assert.equal(open() - before, 1);
    source.close();
  }
  assert.equal(count, 100);
  assert.deepEqual([...findSources(fd, '*/x', () => false)], [], 'files are no directories');
  assert.equal(open(), before);
  closeSync(fd);
});
