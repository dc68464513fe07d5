import assert from 'node:assert/strict';
import { closeSync, existsSync, mkdirSync, mkdtempSync, openSync, symlinkSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, test } from 'node:test';
import { makeDeep } from '../../test/support/deep-directories.js';
import { removeEntry } from './remove-entry.js';
import { removeTree } from './remove-tree.js';
import { removeTrees } from './tasks/remove-trees.js';
import { walkTree } from './walk-tree.js';

const temp = mkdtempSync(join(tmpdir(), 'remove-tree-'));
after(() => removeTree(temp));

/** Makes a tree with so many directories in each other. */
function deep(name: string, levels: number, directory = 'd'): string {
  const top = join(temp, name);
  mkdirSync(top);
  makeDeep(top, levels, directory);
  return top;
}

test('trees that are deeper than a path may be long are deleted, whatever the names', () => {
  const kept = join(temp, 'kept');
  mkdirSync(kept);
  for (const [name, levels, directory] of [
    ['many', 9000, 'd'],
    ['long', 50, 'd'.repeat(255)],
    ['flat', 3, 'd'],
  ] as const) {
    const top = deep(name, levels, directory);
    symlinkSync(kept, join(top, 'link'));
    removeTrees({ paths: [top, join(temp, 'gone')] });
    assert.equal(existsSync(top), false, name);
  }
  const [file, link] = [join(temp, 'file'), join(temp, 'link')];
  writeFileSync(file, '');
  symlinkSync(kept, link);
  removeTrees({ paths: [file, link] });
  assert.deepEqual([existsSync(file), existsSync(link), existsSync(kept)], [false, false, true]);
});

test('a walk takes no more levels than a path can name, and a removal from a container as few', () => {
  const top = deep('walked', 5000);
  const paths = [...walkTree(top, { tooDeep: 'left' })].map(({ path }) => path);
  assert.ok(paths.length > 4000 && paths.every((path) => path.length <= 4096 + '/file'.length), String(paths.length));
  assert.throws(() => [...walkTree(top)], { code: 'ENAMETOOLONG', message: /^file name too long: d\/d\/.{90,100}…$/ });
  const parent = openSync(temp, 'r');
  assert.throws(() => removeEntry(parent, 'walked'), { code: 'ENAMETOOLONG' });
  closeSync(parent);
});
