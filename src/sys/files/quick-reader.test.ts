import assert from 'node:assert/strict';
import { mkdtemp, rm, symlink, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, test } from 'node:test';
import { QuickReader } from './quick-reader.js';

const dir = await mkdtemp(join(tmpdir(), 'quick-reader-'));
after(() => rm(dir, { recursive: true }));
const [file, link, missing] = ['file', 'link', 'missing'].map((name) => join(dir, name)) as [string, string, string];
await writeFile(file, 'é');
await symlink('nowhere', link);

test('files and links are read alike from memory and by the pool, which has those after a slow read', async () => {
  for (const [howManyQuick, asked] of [
    [Infinity, 6],
    [2, 3],
    [0, 1],
  ] as const) {
    let reads = 0;
    const reader = new QuickReader(() => reads++ < howManyQuick);
    assert.equal(await reader.text(file), 'é');
    assert.equal(await reader.link(link), 'nowhere');
    await assert.rejects(reader.text(missing), { code: 'ENOENT' });
    assert.equal(await reader.link(missing), undefined);
    assert.equal(await reader.link(file), undefined);
    assert.equal(await reader.text(file), 'é');
    assert.equal(reads, asked);
    if (howManyQuick === 0) for (let index = 0; index < 32; index++) assert.equal(await reader.text(file), 'é');
    assert.equal(reads, howManyQuick === 0 ? 2 : asked);
  }
});

test('others have their turn while many files are read', async () => {
  const reader = new QuickReader(() => true);
  const theirs = { turns: 0 };
  setImmediate(() => (theirs.turns += 1));
  for (let reads = 0; theirs.turns === 0 && reads < 20_000; reads++) await reader.text(file);
  assert.equal(theirs.turns, 1);
});
