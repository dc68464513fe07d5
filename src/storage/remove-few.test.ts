import assert from 'node:assert/strict';
import { existsSync, mkdirSync, mkdtempSync, readdirSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, test } from 'node:test';
import { removeFew, removeTrees } from './remove-few.js';
import type { WorkerPool } from '../workers/pool.js';

const root = mkdtempSync(join(tmpdir(), 'remove-few-'));
after(() => rmSync(root, { recursive: true, force: true }));

/** Makes a tree as of a container, with so many files beside a link out of it and five directories. */
function makeTree(name: string, files: number): string {
  const tree = join(root, name);
  for (const path of ['diff/etc', 'work/work', 'merged']) mkdirSync(join(tree, path), { recursive: true });
  for (let index = 0; index < files; index++) writeFileSync(join(tree, 'diff/etc', `${index}`), '');
  symlinkSync(root, join(tree, 'diff', 'link'));
  return tree;
}

test('trees of few files are deleted without a thread, and nothing that their links lead to', async () => {
  writeFileSync(join(root, 'kept'), '');
  const trees = [makeTree('a', 3), makeTree('b', 0), join(root, 'gone')];
  assert.equal(await removeFew(trees), true);
  assert.deepEqual(readdirSync(root), ['kept']);
  assert.equal(await removeFew([makeTree('most', 64 - 6)]), true);
  const link = join(root, 'link');
  symlinkSync(makeTree('target', 1), link);
  assert.equal(await removeFew([link]), false);
  assert.equal(existsSync(join(root, 'target', 'diff', 'etc', '0')), true);
});

/** Trees that hold more in all, names that are not text, and what is not a directory. */
function makeOrders(): readonly (readonly string[])[] {
  const [many, strange, file] = [makeTree('many', 70), makeTree('strange', 1), join(root, 'file')];
  const oneMore = makeTree('one-more', 65 - 6);
  const halves = [makeTree('half', 35), makeTree('other-half', 35)];
  writeFileSync(Buffer.concat([Buffer.from(`${strange}/diff/`), Buffer.from([0xff])]), '');
  writeFileSync(file, '');
  return [[many], [oneMore], [strange], [file], halves];
}

test('a program deletes other trees, and nothing that their links lead to, without a thread', async () => {
  const run = async (): Promise<never> => assert.fail('no thread is needed');
  const orders = makeOrders();
  for (const paths of orders) await removeTrees({ run } as unknown as WorkerPool, [...paths, join(root, 'gone')]);
  assert.deepEqual(
    orders.flat().filter((path) => existsSync(path)),
    [],
  );
  assert.equal(existsSync(join(root, 'kept')), true);
});

test('a thread deletes them where there is no such program', async (context) => {
  const path = process.env['PATH'];
  context.after(() => (process.env['PATH'] = path));
  process.env['PATH'] = root;
  const handed: (readonly string[])[] = [];
  const workers = { run: async (_: string, { paths }: { paths: readonly string[] }) => void handed.push(paths) };
  const remove = (paths: readonly string[]): Promise<void> => removeTrees(workers as unknown as WorkerPool, paths);
  const orders = makeOrders();
  for (const paths of orders) await remove(paths);
  const small = [makeTree('one', 1), makeTree('two', 1), makeTree('three', 1)];
  await remove(small);
  assert.deepEqual(handed, [...orders, small]);
  // Too many files are not even begun with, nor are too many trees.
  assert.equal(readdirSync(join(root, 'many', 'diff', 'etc')).length, 70);
  assert.ok(small.every((tree) => existsSync(join(tree, 'diff/etc/0'))));
});
