import assert from 'node:assert/strict';
import { existsSync, mkdirSync, mkdtempSync, readdirSync, rmSync } from 'node:fs';
import { rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, test } from 'node:test';
import { Cleanup } from '../../../test/support/cleanup.js';
import { silentLog } from '../../../test/support/silent-log.js';
import { SmallDisk } from '../../../test/support/small-disk.js';
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
  assert.equal(await trash.put(tree('a')), true);
  assert.equal(await trash.put(join(root, 'none')), false);
  const first = trash.empty();
  while (passes.length === 0) await new Promise(setImmediate);
  await trash.put(tree('b'));
  const second = trash.empty();
  await trash.put(tree('c'));
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
  await trash.put(tree('a'));
  await trash.empty();
  assert.equal(readdirSync(bin).length, 1);
  fails = false;
  await trash.empty();
  assert.deepEqual(readdirSync(bin), []);
});

test('on a disk that is short of space one deletion is waited for, however many trees were put', async (t) => {
  const cleanup = new Cleanup();
  t.after(() => cleanup.run());
  const own = join(SmallDisk.make(cleanup, 16).path, 'bin');
  mkdirSync(own);
  const passes: number[] = [];
  const trash = new Trash(own, async (paths) => void passes.push(paths.length), silentLog);
  const below = (name: string): string => {
    const path = join(own, '..', name);
    mkdirSync(path);
    return path;
  };
  for (const name of ['a', 'b', 'c']) assert.equal(await trash.put(below(name)), true);
  assert.deepEqual(passes, []);
  await trash.relieve();
  assert.deepEqual(passes, [3]);
  assert.equal(await trash.take(below('d')), true);
  assert.equal(await trash.take(join(own, '..', 'none')), false);
  assert.deepEqual(passes, [3, 4], 'what is not deleted is tried again');
  rmSync(own, { recursive: true });
  await trash.relieve();
});
