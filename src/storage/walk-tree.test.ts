import assert from 'node:assert/strict';
import { mkdirSync, mkdtempSync, readdirSync, renameSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, beforeEach, test } from 'node:test';
import { walkOwnTree, walkTree } from './walk-tree.js';

const temp = mkdtempSync(join(tmpdir(), 'walk-'));
const root = join(temp, 'root');
after(() => rmSync(temp, { recursive: true }));

beforeEach(() => {
  rmSync(temp, { recursive: true });
  mkdirSync(join(temp, 'secret'), { recursive: true });
  writeFileSync(join(temp, 'secret/key'), '');
  mkdirSync(join(root, 'a/b'), { recursive: true });
  for (const name of ['a/b/file', 'a.x', 'a/z', 'B']) writeFileSync(join(root, name), '');
});

const openFiles = (): number => readdirSync('/proc/self/fd').length;

test('a walk visits directories first and names in the order of their bytes, and closes what it opens', () => {
  const before = openFiles();
  assert.deepEqual(
    [...walkTree(root)].map(({ path }) => path),
    ['B', 'a', 'a/b', 'a/b/file', 'a/z', 'a.x'],
  );
  // A link to a directory is not entered.
  symlinkSync('a', join(root, 'link'));
  const seenBy = (walk: typeof walkOwnTree): unknown => [...walk(root)].map(({ path, stat }) => [path, stat.ino]);
  assert.deepEqual(seenBy(walkOwnTree), seenBy(walkTree));
  for (const { path } of walkTree(root)) if (path === 'a/b/file') break;
  assert.equal(openFiles(), before);
});

test('a directory that becomes a link during the walk leads nowhere', () => {
  const seen: string[] = [];
  for (const { path } of walkTree(root)) {
    seen.push(path);
    if (path !== 'a') continue;
    renameSync(join(root, 'a'), join(temp, 'moved'));
    symlinkSync(join(temp, 'secret'), join(root, 'a'));
  }
  assert.deepEqual(seen, ['B', 'a', 'a.x']);
});

test('a directory that is replaced while the walk is in it is walked to its end', () => {
  const seen: string[] = [];
  for (const { path, stat } of walkTree(root)) {
    seen.push(path);
    assert.notEqual(stat.ino, 0n);
    if (path !== 'a/b') continue;
    renameSync(join(root, 'a'), join(temp, 'moved'));
    symlinkSync(join(temp, 'secret'), join(root, 'a'));
  }
  assert.deepEqual(seen, ['B', 'a', 'a/b', 'a/b/file', 'a/z', 'a.x']);
});
