import assert from 'node:assert/strict';
import { existsSync, mkdirSync, mkdtempSync, readdirSync, rmSync } from 'node:fs';
import { rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, test } from 'node:test';
import { silentLog } from '../../../test/support/silent-log.js';
import { Trash } from './trash.js';

let root: string;
let bin: string;

beforeEach(() => {
  root = mkdtempSync(join(tmpdir(), 'trash-'));
  mkdirSync((bin = join(root, 'bin')));
});
afterEach(() => rmSync(root, { recursive: true }));

function tree(name: string): string {
  const path = join(root, name);
  mkdirSync(join(path, 'below'), { recursive: true });
  return path;
}

test('a deletion takes along what came until it begins, and no other one follows for that', async () => {
  const passes: number[] = [];
  let release: () => void = () => undefined;
  const held = new Promise<void>((resolve) => (release = resolve));
  const trash = new Trash(
    bin,
    async (paths) => {
      passes.push(paths.length);
      if (passes.length === 1) await held;
      for (const path of paths) await rm(path, { recursive: true });
    },
    silentLog,
  );
  assert.equal(await trash.take(tree('a')), true);
  assert.equal(await trash.take(join(root, 'none')), false);
  const first = trash.empty();
  while (passes.length === 0) await new Promise(setImmediate);
  await trash.take(tree('b'));
  const second = trash.empty();
  await trash.take(tree('c'));
  const third = trash.empty();
  assert.ok(!existsSync(join(root, 'c')));
  release();
  await first;
  await Promise.all([second, third]);
  assert.deepEqual([passes, readdirSync(bin)], [[1, 2], []]);
});

test('a deletion that fails is made up for by the next one', async () => {
  let fails = true;
  const trash = new Trash(
    bin,
    async (paths) => {
      if (fails) throw new Error('no');
      for (const path of paths) await rm(path, { recursive: true });
    },
    silentLog,
  );
  await trash.take(tree('a'));
  await trash.empty();
  assert.equal(readdirSync(bin).length, 1);
  fails = false;
  await trash.empty();
  assert.deepEqual(readdirSync(bin), []);
});
